"""Until when a driver that was told to take over may: while a migration is certain to hold the producers.

A migration that dies behind its order lets go of them by a time, and they write to the old cluster again.
So the order alone is not enough: the migration says again and again for how long they are held, and a driver
counts that, by its own clock, from a moment that it knows to be earlier than that was written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.protocol.board import JobBoard


class HeldWatch:
    """What one driver process has seen of the hold."""

    def __init__(self, board: JobBoard, migration_id: str, *, untold_s: float | None, clock: Clock) -> None:
        """Begin to watch.

        Args:
            board: The job's records.
            migration_id: Whose hold it is.
            untold_s: When this process began a look that found no order, by ``clock``: what speaks of the
                takeover was written later. None if it found one at its first look.
            clock: By which it counts.
        """
        self._board, self._migration_id, self._clock = board, migration_id, clock
        self._untold_s = self._since_s = untold_s
        """Earlier than the begin of the next beat that is seen anew; None: not known."""
        self._looked_s: float | None = None
        self._seen, self._until_s = (0, 0), clock.now_s

    def look(self) -> bool:
        """Look at the newest beat; return whether producers are certain to be held now.

        A beat that comes late, of an attempt or a request that another one has followed, counts for nothing.
        """
        asked_s, slot = self._clock.now_s, self._board.work(self._migration_id)
        beat = (slot.value.attempt, slot.value.beat) if slot is not None else (0, 0)
        if slot is not None and beat > self._seen:
            if beat[0] != self._seen[0]:  # not begun behind what another attempt has written
                self._since_s = self._untold_s
            if self._since_s is not None:
                self._until_s = max(self._until_s, self._since_s + slot.value.held_s)
            self._seen = beat
            if self._looked_s is not None:  # the next one is begun behind this one, which that did not find
                self._since_s = self._looked_s
        self._looked_s = asked_s
        return self._clock.now_s < self._until_s
