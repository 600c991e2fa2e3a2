"""Steps that are tried again, as Airflow's retries do."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.errors import FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_PAUSE_S = 1.0


class Tries:
    """Calls a step until it succeeds, or has failed for too long."""

    def __init__(self, *, patience_s: float = 0.0) -> None:
        """Args: ``patience_s``: how long a step may fail with an error that has a code; 0: not at all."""
        self._patience_s = patience_s
        self.between: Callable[[], object] = lambda: None
        """What a watcher does meanwhile; it may fail."""
        self.told: Counter[str] = Counter()
        """How often which error was answered."""
        self.longest_s = 0.0
        """From a step's first try to its success, of the step that took longest."""

    def __call__(self, step: Callable[[], T]) -> T:
        """Return what the step does in the end; raises its last error."""
        begun_s = time.monotonic()
        while True:
            try:
                found = step()
            except FlinkstyleError as error:
                if time.monotonic() - begun_s >= self._patience_s:
                    raise
                self.told[error.code] += 1
                time.sleep(_PAUSE_S)
                with contextlib.suppress(FlinkstyleError):
                    self.between()
            else:
                self.longest_s = max(self.longest_s, time.monotonic() - begun_s)
                return found
