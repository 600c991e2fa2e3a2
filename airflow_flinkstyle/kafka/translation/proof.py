"""The proof: where on the target are the unread source records? Pure.

It compares records, never offsets: transaction markers and compaction make offsets of the two logs
run apart anywhere. Wanted is the LARGEST target position T such that ``target[T:end)`` contains
``source[o:end)`` in order and nothing that others wrote to the target is between what was read
and T.

Content alone cannot tell a mirror that is behind from one that is in sync if records repeat, so the caller
gives whether MirrorMaker's own positions show that nothing is missing (``caught_up``); otherwise the newest
record must be at no other place on the source.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.fingerprints import NO_KEY
from airflow_flinkstyle.kafka.translation.alignment import (
    IndexBounds,
    Rules,
    Widen,
    common,
    place_between,
    widen,
    widen_context,
)
from airflow_flinkstyle.kafka.verdict import Bounded, Exact, ExtraClass, Refused, Verdict
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Iterator, Mapping

    from airflow_flinkstyle.kafka.fingerprints import Fingerprints

# --- where records of one log stand on the other, from the newest back ----------------------------

_BLOCK = 1 << 16
"""Runs of equal records are compared in blocks; only where the logs differ are they compared one by one."""
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


# --- the position ---------------------------------------------------------------------------------

_LEAST_CONTEXT = 8
"""How many records before the position must be equal where only content shows that the mirror is in sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A verdict and what it rests on."""

    verdict: Verdict
    unread: int
    """Source records from the position on."""
    matched: int
    """How many of them were found on the target."""
    context: int
    """Records before the position that stand, in order, before T."""
    digest: str
    """SHA-256 over the fingerprints of the unread records, in order."""
    extras: Mapping[ExtraClass, int] = field(default_factory=dict)
    """Target records that are none of the unread ones, by class."""
    absent: Mapping[ExtraClass, int] = field(default_factory=dict)
    """Unread source records that compaction has removed on the target, by class."""


def prove_position(
    source: Fingerprints, target: Fingerprints, position: NextOffset, rules: Rules
) -> Proof | Widen:
    """Prove where the records from ``position`` on are on the target.

    Args:
        source: From some records before ``position`` (the context) to the log's end.
        target: The newest records, to the log's end.
        position: Next offset to read on the source.
        rules: See ``Rules``.
    """
    cut = bisect_left(source.offsets, position)
    if cut < _LEAST_CONTEXT and (wider := widen(rules, ("source", source))):
        return wider  # transaction markers fill offsets too
    unread = range(cut, len(source))
    match = walk_back(source, unread, target, len(target), compacted=rules.compacted)
    if match.missing:
        wider = widen(rules, ("target", target))
        return wider or _proof(source, cut, match, _missing(source, target, match))
    place = place_between(source, target, cut, match.at if match.found else None, rules)
    if isinstance(place, Widen):
        return place
    if isinstance(place, Refused):
        return _proof(source, cut, match, place)
    return _decide(source, target, cut, match, place, rules)


def needs_aborted(proof: Proof, source: Fingerprints, rules: Rules) -> bool:
    """Tell whether a proof needs the source's aborted records, too.

    They may explain what only the target seems to hold. And the newest record shows that the mirror is in
    sync only if no aborted one equals it, as after a transaction that was tried again.
    """
    if proof.extras.keys() & {"new", "passed_over"}:
        return True
    by_content = not (rules.caught_up or rules.growing or isinstance(proof.verdict, Refused))
    return by_content and len(source) < source.high - source.low


def aborted_among(everything: Fingerprints, committed: Fingerprints) -> frozenset[int]:
    """Return the records that occur more often once aborted ones are read, too."""
    return frozenset(Counter(everything.prints) - Counter(committed.prints))


def _decide(
    source: Fingerprints, target: Fingerprints, cut: int, match: Match, place: IndexBounds, rules: Rules
) -> Proof | Widen:
    """Choose between the two bounds of the position, and count the extra records."""
    kinds = _Kinds(source, target, cut, place, rules)
    start = next((i for i in range(place.low, place.high) if not kinds.is_copy(i)), place.high)
    read = walk_back(source, range(cut), target, start, compacted=rules.compacted, holes=True)
    extras = kinds.count(match.others(start, _end(target, match, start, rules)))
    passed = kinds.count(_strange(source, target, start))["new"]
    if passed:
        extras["passed_over"] = passed
    unsure = start < place.high or passed or extras["new"]
    if unsure and (wider := widen_context(source, cut, rules)):
        return wider
    offset = NextOffset(target.offsets[start] if start < len(target) else target.high)
    refusal = _refusal(source, cut, read.found, rules)
    if isinstance(refusal, Widen):
        return refusal
    good = Bounded(offset, dict(extras), dict(match.absent)) if extras or match.absent else Exact(offset)
    return _proof(source, cut, match, refusal or good, context=read.found, extras=extras)


def _proof(
    source: Fingerprints,
    cut: int,
    match: Match,
    verdict: Verdict,
    *,
    context: int = 0,
    extras: Mapping[ExtraClass, int] | None = None,
) -> Proof:
    return Proof(
        verdict=verdict,
        unread=len(source) - cut,
        matched=match.found,
        context=context,
        digest=sha256(memoryview(source.prints)[cut:]).hexdigest(),
        extras=dict(extras or {}),
        absent=dict(match.absent),
    )


def _strange(source: Fingerprints, target: Fingerprints, end: int) -> Iterator[int]:
    """Yield the target's records without an equal in the source's range, from the first that has one on."""
    head = target.prints[:end]
    known = common(source, head)
    first = next((i for i, record in enumerate(head) if record in known), end)
    return (i for i in range(first, end) if head[i] not in known)


def _end(target: Fingerprints, match: Match, start: int, rules: Rules) -> int:
    """Return where the part of the target ends that can be compared."""
    if not rules.growing:
        return len(target)
    return max(start, match.end) if match.found else start  # what follows is newer than the preview


class _Kinds:
    """Classifies the target's records that are no unread records."""

    def __init__(
        self, source: Fingerprints, target: Fingerprints, cut: int, place: IndexBounds, rules: Rules
    ) -> None:
        self._source, self._target, self._cut, self._place, self._rules = source, target, cut, place, rules
        self._times: Counter[int] | None = None
        self._sets: tuple[set[int], set[int]] | None = None
        self._newest: dict[int, int] | None = None

    def is_copy(self, index: int) -> bool:
        """Return whether a record is surely a second copy, or nothing a reader needs."""
        record, rules = self._target.prints[index], self._rules
        if self._times is None:
            wanted = set(self._target.prints[self._place.low : self._place.high])
            self._times = Counter(p for p in self._source.prints if p in wanted)
        if self._times[record] or record in rules.aborted:
            return rules.sole_writer or (rules.dated and self._times[record] < 2)
        return self._is_superseded(index) or self._is_deleted_copy()

    def count(self, indexes: Iterable[int]) -> Counter[ExtraClass]:
        """Count records by class."""
        return Counter(self._class_of(index) for index in indexes)

    def _class_of(self, index: int) -> ExtraClass:
        record = self._target.prints[index]
        if self._sets is None:
            prints, cut = self._source.prints, self._cut
            self._sets = set(prints[cut:]), set(prints[:cut])
        unread, read = self._sets
        if record in unread:
            return "duplicate"
        if record in read:
            return "copy_before"
        if record in self._rules.aborted:
            return "phantom_aborted"
        if self._is_superseded(index):
            return "superseded"
        return "copy_before" if self._is_deleted_copy() else "new"

    def _is_deleted_copy(self) -> bool:
        """Return whether a record that is not on the source can only be a copy of one deleted there."""
        begun = self._source.whole_log and self._source.log_start == 0
        return self._rules.sole_writer and not begun

    def _is_superseded(self, index: int) -> bool:
        """Return whether the source may have dropped this version of a key, which has a newer one."""
        if not self._rules.versioned:
            return False
        if self._newest is None:
            self._newest = {key: i for i, key in enumerate(self._target.keys)}
        key = self._target.keys[index]
        return key != NO_KEY and self._newest[key] > index


def _refusal(source: Fingerprints, cut: int, context: int, rules: Rules) -> Refused | Widen | None:
    """Return why nothing shows that the mirror is in sync, or None."""
    if rules.caught_up or rules.growing:
        return None
    if cut == len(source):
        return Refused(
            "the position is at the log's end, and nothing proves that the mirror is in sync", None
        )
    if context < _LEAST_CONTEXT:
        return Refused(
            "too few records before the position are equal, and nothing proves that the mirror is in sync",
            None,
        )
    return _may_repeat(source, rules)


def _may_repeat(source: Fingerprints, rules: Rules) -> Refused | Widen | None:
    """Return None only if the newest record is nowhere else on the source.

    Its copy then shows that the mirror has come to the end. A copy of an equal record shows nothing: a mirror
    that stopped before the end, or repeated itself and then stopped, would look in sync.
    """
    if not rules.dated and source.log_start > 0:
        return Refused(
            "the records carry no time of their own, and deleted ones may equal the newest, so content "
            "cannot show that the mirror is in sync",
            None,
        )
    if not source.whole_log and (rules.oldest_equal is None or rules.oldest_equal < source.low):
        return widen(rules, ("source", source)) or Refused(
            "older records may equal the newest one, so content cannot show that the mirror is in sync", None
        )
    if rules.oldest_equal is not None and 0 < source.log_start >= rules.oldest_equal:
        return Refused(
            "deleted records may be as new as the newest one and equal it, so content cannot show that the "
            "mirror is in sync",
            None,
        )
    if source.prints.count(source.prints[-1]) > 1 or source.prints[-1] in rules.aborted:
        return Refused("the newest records repeat, so content cannot show that the mirror is in sync", None)
    return None


def _missing(source: Fingerprints, target: Fingerprints, match: Match) -> Refused:
    places = [source.offsets[i] for i in match.missing]
    source_range = (NextOffset(min(places)), NextOffset(max(places) + 1))
    wanted = {source.prints[i] for i in match.missing}
    count = len(places)
    if wanted <= wanted.intersection(target.prints):
        reason = f"{count} unread records are in another order on the target"
    elif not target.whole_log:
        reason = f"{count} unread records are not among the newest {len(target)} on the target"
    else:
        reason = f"{count} unread records are not on the target"
    return Refused(reason, source_range)
