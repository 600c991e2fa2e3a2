"""Starts a component again that has died, and counts how often."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol, Self

from testbed.process import ServiceError

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOK_S = 2.0


class Component(Protocol):
    """What can die."""

    @property
    def has_died(self) -> bool:
        """True if it was started and does its work no more."""

    def start(self) -> None:
        """Start it and return once it is ready."""

    def stop(self) -> None:
        """End what is left of it."""


class Keeper:
    """Runs a component inside ``with``, starting it again as often as it dies."""

    def __init__(self, component: Component, said: Callable[[], None], *, look_s: float = _LOOK_S) -> None:
        """Prepare.

        Args:
            component: Not started yet.
            said: Called before each time that it is started again.
            look_s: How often to look whether it lives.
        """
        self._component, self._said, self._look_s = component, said, look_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="keeper", daemon=True)

    def __enter__(self) -> Self:
        self._component.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._component.stop()

    def _keep(self) -> None:
        while not self._over.wait(self._look_s):
            if self._component.has_died:
                self._said()
                self._component.stop()
                try:
                    self._component.start()
                except ServiceError:
                    continue  # it has stopped then, and is found dead again
