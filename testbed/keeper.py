"""Starts a component again that has died, and counts how often."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, Self

from testbed.looking import Looking
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


class Keeper(Looking):
    """Runs a component inside ``with``, starting it again as often as it dies."""

    def __init__(self, component: Component, said: Callable[[], None], *, look_s: float = _LOOK_S) -> None:
        """Prepare.

        Args:
            component: Not started yet.
            said: Called before each time that it is started again.
            look_s: How often to look whether it lives.
        """
        super().__init__(look_s)
        self._component, self._said = component, said

    def __enter__(self) -> Self:
        self._component.start()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._component.stop()

    def look(self) -> None:
        """Start it again if it has died."""
        if self._component.has_died:
            self._said()
            self._component.stop()
            with suppress(ServiceError):  # it has stopped then, and is found dead again
                self._component.start()
