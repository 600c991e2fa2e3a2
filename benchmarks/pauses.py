"""The pauses between the commits of a query, noted while they come: Spark deletes old ones."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from benchmarks.moved_job import commits
from testbed.looking import Looking

if TYPE_CHECKING:
    from pathlib import Path


class Watch(Looking):
    """Notes the commits of a checkpoint from the newest one on."""

    def __init__(self, checkpoint: Path) -> None:
        super().__init__(1)
        self._checkpoint, self._seen = checkpoint, dict([max(commits(checkpoint).items())])

    def __exit__(self, *_: object) -> None:
        """Look once more."""
        super().__exit__()
        self.look()

    def look(self) -> None:
        """Note the commits that came."""
        first = min(self._seen)
        self._seen |= {batch: at_s for batch, at_s in commits(self._checkpoint).items() if batch >= first}

    def longest_pause_s(self) -> float:
        """Return the longest time between two commits; every batch must be there."""
        numbers = sorted(self._seen)
        if numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise RuntimeError(f"batches one after the other were expected, found {numbers}")
        return max(self._seen[after] - self._seen[one] for one, after in itertools.pairwise(numbers))
