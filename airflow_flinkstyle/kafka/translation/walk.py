"""Find the records of one log on another, from the newest back. Pure.

Runs of equal records are compared in blocks; only where the logs differ is anything looked at one by one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.fingerprints import NO_KEY

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator

    from airflow_flinkstyle.kafka.fingerprints import Fingerprints
    from airflow_flinkstyle.kafka.verdict import ExtraClass

_BLOCK = 1 << 16
_LOOKED_UP = 16
"""Records searched for one by one before an index of the whole range is made."""


@dataclass(slots=True, kw_only=True)
class Match:
    """Where records of the source stand on the target; indexes into the ranges."""

    at: int
    """All records that were found are from here on."""
    runs: list[tuple[int, int]] = field(default_factory=list)
    """Found stretches of the target, the newest first; ends exclusive."""
    absent: Counter[ExtraClass] = field(default_factory=Counter)
    """Source records that the target's compaction has removed."""
    missing: list[int] = field(default_factory=list)
    """Source records that are not there, the newest first."""

    @property
    def found(self) -> int:
        """How many records were found."""
        return sum(end - start for start, end in self.runs)

    @property
    def end(self) -> int:
        """Behind the newest record that was found; ``at`` if there is none."""
        return self.runs[0][1] if self.runs else self.at

    def others(self, start: int, end: int) -> Iterator[int]:
        """Yield the target's records in a stretch that nothing was found in."""
        at = start
        for low, high in reversed(self.runs):
            yield from range(at, min(low, end))
            at = max(at, high)
        yield from range(at, end)


def equal_run(one: array[int], one_end: int, other: array[int], other_end: int, most: int) -> int:
    """Return how many of the records before both ends are equal, counted from the ends; at most ``most``."""
    equal, block = 0, 1
    most = min(most, one_end, other_end)
    while equal < most:
        block = min(block, most - equal)
        a, b = one_end - equal, other_end - equal
        if one[a - block : a] == other[b - block : b]:
            equal += block
            block = min(2 * block, _BLOCK)
        elif block == 1:
            break
        else:
            block //= 2
    return equal


def walk_back(
    source: Fingerprints,
    records: range,
    target: Fingerprints,
    end: int,
    *,
    compacted: bool,
    holes: bool = False,
) -> Match:
    """Match source records, the newest first, each as late on the target as it can stand.

    Args:
        source: Holds the records.
        records: Which ones.
        target: Where to find them.
        end: Only before this index.
        compacted: The target may lack older versions of a key, and deletions.
        holes: Skip what is missing without noting it: the records are context only.
    """
    match = Match(at=end)
    places, keys = _Places(target.prints), _Places(target.keys)
    newer_keys: set[int] = set(source.keys[records.stop :]) if compacted else set()
    i = records.stop
    while i > records.start:
        run = equal_run(source.prints, i, target.prints, match.at, i - records.start)
        if run:
            _note_run(match, run)
            if compacted:
                newer_keys.update(source.keys[i - run : i])
            i -= run
            continue
        i -= 1
        place = places.last_before(source.prints[i], match.at)
        if place is not None:
            match.at = place + 1
            i += 1
        elif compacted and source.keys[i] != NO_KEY and source.keys[i] in newer_keys:
            match.absent["superseded"] += 1
        elif compacted and source.tombstones[i] and not keys.stands_before(source.keys[i], match.at):
            # Compaction removes a deletion only after what it deletes.
            match.absent["tombstone"] += 1
            newer_keys.add(source.keys[i])
        elif not holes:
            match.missing.append(i)
    return match


def _note_run(match: Match, run: int) -> None:
    start, end = match.at - run, match.at
    if match.runs and match.runs[-1][0] == end:
        end = match.runs.pop()[1]
    match.runs.append((start, end))
    match.at = start


class _Places:
    """Where a record is; an index is made only for ranges that differ in many places."""

    def __init__(self, prints: array[int]) -> None:
        self._prints = prints
        self._first: dict[int, int] | None = None
        self._asked = 0

    def last_before(self, record: int, end: int) -> int | None:
        """Return the last place of a record before an index."""
        if not self.stands_before(record, end):
            return None
        place = end - 1
        while self._prints[place] != record:
            place -= 1
        return place

    def stands_before(self, record: int, end: int) -> bool:
        """Return whether a record is anywhere before an index."""
        if self._first is None:
            self._asked += 1
            if self._asked <= _LOOKED_UP:
                try:
                    self._prints.index(record, 0, end)
                except ValueError:
                    return False
                return True
            self._first = {}
            for index, known in enumerate(self._prints):
                self._first.setdefault(known, index)
        return self._first.get(record, end) < end
