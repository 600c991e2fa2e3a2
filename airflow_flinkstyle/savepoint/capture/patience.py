"""How a take waits for a store that fails for a while: it repeats each call until it succeeds."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.clock import CLOCK, Clock
from airflow_flinkstyle.savepoint.errors import TakeCancelledError
from airflow_flinkstyle.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

STORE_PATIENCE_S = 600.0
"""How long a job's savepoint waits for one call to a store: throttled, or away for a while."""
_PAUSE_S, _MOST_PAUSE_S = 0.1, 5.0
_CHECK_S = 0.25
"""How soon a take that waits for its store notices that it is to end."""
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePatience:
    """Repeats a call while the store fails for a reason that may pass; safe for threads.

    Whatever a call uploaded before it failed stays, so each call is for one file at most.
    """

    for_s: float
    """How long one call may continue failing; 0 to fail at once."""
    ends: Callable[[], bool]
    """Called while it waits: True ends the wait with ``TakeCancelledError``."""
    what: str
    """The job or query of the savepoint, for messages."""
    clock: Clock = CLOCK

    def __call__(self, call: Callable[[], T]) -> T:
        """Return what the call returns; raises what it raises, once that is final or the patience is over."""
        until_s, pause_s = self.clock.now_s + self.for_s, _PAUSE_S
        while True:
            try:
                return call()
            except StoreError as error:
                if not error.passes_soon or self.clock.now_s >= until_s:
                    raise
                log.warning("The savepoint of %s waits for its store: %s", self.what, error.problem)
                self._pause(min(pause_s, until_s - self.clock.now_s), error)
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)

    def _pause(self, pause_s: float, error: StoreError) -> None:
        wait = self.clock.wait(pause_s, every_s=min(pause_s, _CHECK_S))
        while wait.again():
            if self.ends():
                raise TakeCancelledError.of(self.what) from error
