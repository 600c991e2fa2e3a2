"""What a change of state is at, in this module's log: each step as it begins, while it lasts, as it ends."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Tasks = Callable[[], tuple[int, int]]
    """Of what Spark is at: the tasks that are done, and all."""

log = logging.getLogger(__name__)
TOOK: Final = "%s took %.1f s"
TOLD: Final = "flinkstyle: "
"""What such a line begins with on standard error, for ``flinkstyle``, which asks another process."""
_EVERY_S: Final = 10.0


@contextlib.contextmanager
def step(what: str, tasks: Tasks, *, every_s: float = _EVERY_S) -> Iterator[None]:
    """Say that a step begins, every few seconds how far Spark is, and how long it took.

    Args:
        what: The step, such as ``writing operator 0``.
        tasks: How far Spark is; what it raises is left out, since it only tells.
        every_s: Seconds between two lines.
    """
    begun_s = time.monotonic()
    log.info("%s", what)
    ends = threading.Event()
    teller = threading.Thread(target=_tell, args=(what, tasks, ends, every_s), daemon=True)
    teller.start()
    try:
        yield
    finally:
        ends.set()
        teller.join()
    log.info(TOOK, what, time.monotonic() - begun_s)


def tell() -> None:
    """Write these lines to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"{TOLD}%(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)


def _tell(what: str, tasks: Tasks, ends: threading.Event, every_s: float) -> None:
    while not ends.wait(every_s):
        with contextlib.suppress(Exception):
            done, total = tasks()
            log.info("%s: %d of %d tasks", what, done, total)
