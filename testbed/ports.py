"""Free ports, so that two checkouts can run side by side."""

from __future__ import annotations

import os
import random
import socket

LOOPBACK = "127.0.0.1"
_given: set[int] = set()
_FIRST, _LAST = 20_000, 32_000
"""Below the range from which Linux takes ports for outgoing connections."""
_LANES = 4
_LANE = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _LANES
"""Tests that run side by side draw from ports of their own: between draw and use others see a port free."""


def free_port() -> int:
    """Return a port nobody listens on and that was not given out before.

    It is drawn at random, so that another checkout asking at the same moment gets another one.
    """
    for _ in range(1000):
        port = random.randrange(_FIRST + _LANE, _LAST, _LANES)  # noqa: S311  # spreading, not a secret
        if port not in _given and _can_bind(port):
            _given.add(port)
            return port
    raise RuntimeError(
        f"A free port between {_FIRST} and {_LAST} was expected, 1000 tries found none. "
        "Nothing was started. End the programs that hold them."
    )


def is_listening(port: int, host: str = LOOPBACK) -> bool:
    """True if somebody accepts connections on the port of an address of this machine."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
