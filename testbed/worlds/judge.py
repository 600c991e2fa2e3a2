"""Is an answer right? The judge reads the whole world. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.verdict import Bounded, Chosen, Exact, Refused
from airflow_flinkstyle.types import NextOffset
from testbed.worlds.world import ABORTED, GONE, OTHERS, RECORD, prints

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.worlds.proof import Answer
    from testbed.worlds.world import World


@dataclass(frozen=True, slots=True)
class Seen:
    """One record that a reader of the target finds."""

    print: int
    origin: int
    offset: int
    key: int


def wrong(world: World, answer: Answer) -> str | None:
    """Return what is wrong with an answer, or None."""
    verdict = answer.verdict
    if isinstance(verdict, Refused):
        return None
    if isinstance(verdict, Chosen):
        return "chosen by nobody"
    return _Case(world, answer, verdict).wrong()


class _Case:
    """An answer that is not a refusal, and everything that stands in the world."""

    def __init__(self, world: World, answer: Answer, verdict: Exact | Bounded) -> None:
        self.world, self.answer, self.verdict = world, answer, verdict
        self.prints = prints(world.source, dated=world.dated)
        self.source = [
            (at, self.prints[at], entry[3]) for at, entry in enumerate(world.source) if entry[0] == RECORD
        ]
        cut = bisect_left(self.source, (world.position,))
        self.read = [one for one in self.source[:cut] if one[0] >= world.source_start]
        self.unread = self.source[cut:]
        self.target = [
            Seen(record, entry[5], at, entry[3])
            for at, (entry, record) in enumerate(
                zip(world.target, prints(world.target, dated=world.dated), strict=True)
            )
            if entry[0] == RECORD and at >= world.target_start
        ]
        self.first = bisect_left(self.target, verdict.offset, key=lambda seen: NextOffset(seen.offset))
        self.extras, self.absent = Counter[str](), Counter[str]()
        if isinstance(verdict, Bounded):
            self.extras.update({str(name): count for name, count in verdict.extras.items()})
            self.absent.update({str(name): count for name, count in verdict.absent.items()})

    def wrong(self) -> str | None:
        """Return the first thing that is wrong."""
        reads = [seen.print for seen in self.target[self.first :]]
        unread = [record for _, record, _ in self.unread]
        if isinstance(self.verdict, Exact):
            if reads != unread:
                return "exact, but other records follow"
        elif lost := self._lost(reads):
            return lost
        elif miscounted := self._miscounted(reads, unread):
            return miscounted
        if not self.world.in_sync and not self._came_to_the_end():
            return "taken for in sync, but the mirror stopped short"
        return self._passed_over()

    def _came_to_the_end(self) -> bool:
        """Return whether the newest record was copied; or an equal one of others, or one that is deleted.

        Those are stated limits: where the oldest record that is left is older than the newest, or compaction
        has removed the equal one.
        """
        if not self.source:
            return False
        newest, record, _ = self.source[-1]
        start, log = self.world.source_start, self.world.source
        older = any(log[at][2] < log[newest][2] for at in range(start, min(start + 1, newest)))
        ends = {newest, OTHERS, *(range(start) if older else ())}
        ends.update(at for at, entry in enumerate(log) if entry[0] == GONE)
        return any(seen.origin in ends and seen.print == record for seen in self.target)

    def _lost(self, reads: Sequence[int]) -> str | None:
        newest = {key: at for at, _, key in self.unread if key}
        needed = [
            (record, self.world.source[offset][4])
            for offset, record, key in self.unread
            if not (self.world.compacted and key and newest[key] != offset)
        ]
        removed = self.absent.get("tombstone", 0)
        return None if _in_order(needed, list(reads), removed) else "an unread record is lost"

    def _miscounted(self, reads: Sequence[int], unread: Sequence[int]) -> str | None:
        told = sum(count for name, count in self.extras.items() if name != "passed_over")
        if told != len(reads) - len(unread) + sum(self.absent.values()):
            return f"{told} extra records are told of"
        least, most = self._by_class(Counter(reads), Counter(unread))
        for name in sorted(least.keys() | self.extras.keys() | most.keys()):
            if name != "passed_over" and not least[name] <= self.extras.get(name, 0) <= most[name]:
                return f"{self.extras.get(name, 0)} of class {name}, not {least[name]} to {most[name]}"
        return None

    def _by_class(self, reads: Counter[int], unread: Counter[int]) -> tuple[Counter[str], Counter[str]]:
        """Return how many records of each class there are at least, and at most."""
        least, most = Counter[str](), Counter[str]()
        history: dict[int, set[int]] = {}
        for entry, record in zip(self.world.source, self.prints, strict=True):
            history.setdefault(record, set()).add(entry[0])
        compared = set(self.answer.source.prints)
        newer = self._superseded()
        for record, count in reads.items():
            if record in unread:
                least["duplicate"] += count
                continue
            classes = _classes(history.get(record, set()), record in compared)
            if record in newer:
                classes.add("superseded")
            for name in classes:
                most[name] += count
                least[name] += count if len(classes) == 1 else 0
        least["duplicate"] -= unread.total() - sum(self.absent.values())
        most["duplicate"] = least["duplicate"]
        return least, most

    def _superseded(self) -> set[int]:
        if not self.world.versioned:
            return set()
        newest = {seen.key: seen.offset for seen in self.target}
        return {seen.print for seen in self.target if seen.key and newest[seen.key] > seen.offset}

    def _passed_over(self) -> str | None:
        """Others' records that nobody reads, behind where the mirror first came to the position."""
        told = self.extras.get("passed_over", 0)
        compared = Counter(self.answer.source.prints)
        passed = [seen for seen in self.target[: self.first] if seen.print not in compared]
        if told > len(passed):
            return f"{told} records are told to be passed over, not {len(passed)}"
        if self.world.sole_writer:
            return None
        newest = self.read[-1][0] if self.read else self.world.position
        later = {at for at, _, _ in self.source if at >= newest}
        start = self.world.target_start_at_last
        come = next(
            (i for i, seen in enumerate(self.target) if seen.origin in later and seen.offset >= start), None
        )
        if come is None:
            return None
        newest_of = {seen.key: seen.offset for seen in self.target} if self.world.versioned else {}
        others = [
            seen
            for seen in self.target[come : self.first]
            if seen.origin == OTHERS and not (seen.key and newest_of.get(seen.key, -1) > seen.offset)
        ]
        if not others:
            return None
        aborted = {self.prints[at] for at, entry in enumerate(self.world.source) if entry[0] == ABORTED}
        strange = sum(seen.print not in compared and seen.print not in aborted for seen in others)
        if strange > told:
            return f"{strange} records of others are passed over, {told} are told of"
        equal = [seen.print for seen in others if seen.print in compared or seen.print in aborted]
        if self.world.dated:  # stated limit: such a record is taken for a copy
            equal = [record for record in equal if compared[record] > 1]
        if equal and not self._repeats_in_a_pass_with_holes(come):
            return "a record of others that equals a mirrored one is passed over"
        return None

    def _repeats_in_a_pass_with_holes(self, come: int) -> bool:
        """Return whether a stated limit holds for others' records that equal mirrored ones.

        What the mirror's first pass copied behind the position equals what stands before it, and that pass
        lacks records.
        """
        read = [(at, record) for at, record, _ in self.read if at >= self.answer.source.low]
        if self.target[come].print not in [record for _, record in read[:-1]]:
            return False
        there = {seen.origin for seen in self.target[: come + 1]}
        return any(at not in there for at, _ in read)


def _in_order(needed: Sequence[tuple[int, bool]], reads: list[int], tombstones: int) -> bool:
    """Return whether what is needed stands there in order, but for so many deletions."""
    at = 0
    for i, (record, tombstone) in enumerate(needed):
        if tombstone and tombstones and _in_order(needed[i + 1 :], reads[at:], tombstones - 1):
            return True
        if record not in reads[at:]:
            return False
        at = reads.index(record, at) + 1
    return True


def _classes(kinds: set[int], compared: bool) -> set[str]:
    """Return of which classes a record may be that is no unread one, by what the source ever held."""
    if not kinds:
        return {"new"}
    classes = {"copy_before"} if compared else {"copy_before", "new"}
    return classes | {"phantom_aborted"} if ABORTED in kinds else classes
