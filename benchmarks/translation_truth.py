"""What truly comes after a position: the producers' ledger beside what the target holds. Pure.

Every record has a number that only the ledger knows how to read. An answer, whoever gave it, is judged by
the numbers a reader of the target would get from it on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Entry:
    """One record that readers see, in one of the two logs."""

    number: int
    """The producer's; a mirrored copy has the same."""
    offset: int
    key: bytes | None
    tombstone: bool
    timestamp_ms: int


@dataclass(slots=True, kw_only=True)
class Truth:
    """Both logs of one partition."""

    kind: str
    compacted: bool = False
    source: list[Entry] = field(default_factory=list)
    """All that was ever committed, in order: also what the source has deleted since."""
    target: list[Entry] = field(default_factory=list)
    """What readers find there now."""
    own: set[int] = field(default_factory=set)
    """Numbers that the target's own producers wrote: new to the job wherever it goes on."""
    source_start: int = 0
    source_end: int = 0
    mirrored_to: int = 0
    """The first source offset that MirrorMaker has not replicated, by its own word."""

    def unread(self, position: int) -> list[Entry]:
        """Return what a reader at the position has not read yet."""
        return [entry for entry in self.source if entry.offset >= position]

    def needed(self, position: int) -> list[Entry]:
        """Return what of that compaction must have left: the newest record of each key."""
        unread = self.unread(position)
        if not self.compacted:
            return unread
        newest = {entry.key: entry for entry in unread if entry.key is not None}
        return [entry for entry in unread if entry.key is None or newest[entry.key] is entry]


@dataclass(frozen=True, slots=True)
class Judged:
    """What going on at an offset of the target means."""

    lost: int
    """Unread records that do not come any more."""
    repeated: int
    """Records that come though they were read already, come twice, or were never committed."""
    in_order: bool

    @property
    def exact(self) -> bool:
        """True if the reader gets precisely what it would have got from the source."""
        return self.lost == 0 and self.repeated == 0 and self.in_order


def judge(truth: Truth, position: int, target_offset: int) -> Judged:
    """Compare what a reader gets from the offset on with what it should."""
    comes = [e.number for e in truth.target if e.offset >= target_offset and e.number not in truth.own]
    counts = Counter(comes)
    unread = [entry.number for entry in truth.unread(position)]
    wanted = set(unread)
    first = [number for number in dict.fromkeys(comes) if number in wanted]
    return Judged(
        lost=sum(entry.number not in counts for entry in truth.needed(position)),
        repeated=sum(count - (number in wanted) for number, count in counts.items()),
        in_order=first == [number for number in unread if number in counts],
    )


def missing(truth: Truth, position: int) -> list[Entry]:
    """Return the needed records that are nowhere on the target: no answer can be right about them."""
    there = {entry.number for entry in truth.target}
    return [entry for entry in truth.needed(position) if entry.number not in there]
