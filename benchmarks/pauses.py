"""The pauses between the commits of a query, noted while they come: Spark deletes old ones."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Self

from benchmarks.moved_job import commits

if TYPE_CHECKING:
    from pathlib import Path


class Watch:
    """Notes the commits of a checkpoint from the newest one on."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint, self._seen = checkpoint, dict([max(commits(checkpoint).items())])
        self._ends, self._thread = threading.Event(), threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look once more."""
        self._ends.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ends.wait(1):
            self._note()
        self._note()

    def _note(self) -> None:
        first = min(self._seen)
        self._seen |= {batch: at_s for batch, at_s in commits(self._checkpoint).items() if batch >= first}

    def longest_pause_s(self) -> float:
        """Return the longest time between two commits; every batch must be there."""
        numbers = sorted(self._seen)
        if numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise RuntimeError(f"batches one after the other were expected, found {numbers}")
        return max(self._seen[after] - self._seen[one] for one, after in itertools.pairwise(numbers))
