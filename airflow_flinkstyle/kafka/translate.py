"""The suffix proof: where on the target do the unread source records stand? Pure.

Wanted is the LARGEST target position T such that ``target[T:end)`` contains ``source[o:end)`` in
order. It compares records, never offsets: transaction markers and compaction make offsets of the
two logs run apart anywhere.

Content alone cannot tell a mirror that is behind from one that is level if records repeat, so the
caller says whether MirrorMaker's own positions show that nothing is missing (``caught_up``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from airflow_flinkstyle.kafka.verdict import Bounded, Exact, ExtraClass, Refused, Verdict
from airflow_flinkstyle.kafka.window import NO_KEY
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.window import Window

_LEAST_CONTEXT = 8
"""Equal records before the position that content needs when nothing else speaks for the mirror."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for both logs of a partition."""

    compacted: bool = False
    """The target's ``cleanup.policy`` contains ``compact``: it may lack older versions of a key."""
    caught_up: bool = False
    """MirrorMaker's own position says that every source record is on the target."""
    accept_lost_tombstones: bool = False
    """Whether deletions that the target's compaction has removed may be missing."""
    growing: bool = False
    """Preview: producers are at work, so newer records may follow on the target."""
    aborted: frozenset[int] = frozenset()
    """Fingerprints of aborted source records, to name phantoms by their name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A verdict and what it rests on."""

    verdict: Verdict
    unread: int
    """Source records from the position on."""
    matched: int
    """How many of them were found on the target."""
    context: int
    """Records before the position that equal those before T."""
    digest: str
    """SHA-256 over the fingerprints of the unread records, in order."""
    extras: Mapping[ExtraClass, int] = field(default_factory=dict)
    """Target records from T on that the source does not hold there, by class."""
    absent: Mapping[ExtraClass, int] = field(default_factory=dict)
    """Unread source records that compaction has removed on the target, by class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Widen:
    """The window of one side is too short to decide."""

    side: Literal["source", "target"]


@dataclass(slots=True)
class _Match:
    """Result of the walk: indexes into the target window."""

    at: int
    """T as an index; everything unread was found from here on."""
    last: int | None = None
    """Index of the last match."""
    used: set[int] = field(default_factory=set)
    absent: Counter[ExtraClass] = field(default_factory=Counter)
    missing: list[int] = field(default_factory=list)
    """Indexes into the source window."""


def translate(source: Window, target: Window, position: int, rules: Rules) -> Proof | Widen:
    """Prove where the records from ``position`` on stand on the target.

    Args:
        source: From some records before ``position`` (the context) to the log's end.
        target: The newest records, to the log's end.
        position: Next offset to read on the source.
        rules: See there.
    """
    cut = bisect_left(source.offsets, position)
    match = _walk_back(source, target, cut, rules)
    if (match.missing or match.at < cut) and not target.whole_log:
        return Widen(side="target")
    unread = len(source) - cut
    start = _start_index(source, target, cut, match, rules)
    context = _context_matches(source, target, cut, start, rules)
    extras = _class_extras(source, target, cut, start, match, rules)
    offset = NextOffset(target.offsets[start] if start < len(target) else target.high)
    refusal = _refusal(source, target, cut, match, context, rules)
    return Proof(
        verdict=refusal or _verdict_at(offset, extras, match.absent),
        unread=unread,
        matched=len(match.used),
        context=context or 0,
        digest=sha256(source.prints[cut:].tobytes()).hexdigest(),
        extras=dict(extras),
        absent=dict(match.absent),
    )


def _walk_back(source: Window, target: Window, cut: int, rules: Rules) -> _Match:
    """Match the unread records from the newest back, each as late on the target as it can stand."""
    match = _Match(at=len(target))
    first = _first_places(target)
    newer_keys: set[int] = set()
    for i in range(len(source) - 1, cut - 1, -1):
        record, key = source.prints[i], source.keys[i]
        if first.get(record, match.at) < match.at:
            match.at -= 1
            while target.prints[match.at] != record:
                match.at -= 1
            match.last = match.at if match.last is None else match.last
            match.used.add(match.at)
            newer_keys.add(key)
        elif rules.compacted and key != NO_KEY and key in newer_keys:
            match.absent["superseded"] += 1
        elif rules.compacted and rules.accept_lost_tombstones and source.tombstones[i]:
            match.absent["tombstone"] += 1
            newer_keys.add(key)
        else:
            match.missing.append(i)
    return match


def _first_places(target: Window) -> dict[int, int]:
    places: dict[int, int] = {}
    for index, record in enumerate(target.prints):
        places.setdefault(record, index)
    return places


def _start_index(source: Window, target: Window, cut: int, match: _Match, rules: Rules) -> int:
    """Return T as an index; at the log's end of a growing log it follows the last record read."""
    if not rules.growing or match.used or cut == 0:
        return match.at
    last_read = source.prints[cut - 1]
    for index in range(len(target) - 1, -1, -1):
        if target.prints[index] == last_read:
            return index + 1
    return match.at


def _context_matches(source: Window, target: Window, cut: int, start: int, rules: Rules) -> int | None:
    """Return how many records just before position and T are equal; None if any differs.

    Older versions that the target's compaction has removed are passed over, and, if the mirror is
    known to be level, second copies of read records on the target: they are never read again.
    """
    equal, j = 0, start - 1
    newer = set(source.keys[cut:])
    copies = set(source.prints[:cut]) if rules.caught_up else set()
    for i in range(cut - 1, -1, -1):
        key = source.keys[i]
        j = _skip_copies(target, j, source.prints[i], copies)
        if j >= 0 and target.prints[j] == source.prints[i]:
            equal, j = equal + 1, j - 1
        elif not (rules.compacted and key != NO_KEY and key in newer):
            return equal if j < 0 and target.whole_log and equal else None
        newer.add(key)
    return equal


def _skip_copies(target: Window, j: int, wanted: int, copies: set[int]) -> int:
    """Return the next place of ``wanted`` at or before ``j`` with only copies between, else ``j``."""
    place = j
    while place >= 0 and target.prints[place] != wanted and target.prints[place] in copies:
        place -= 1
    return place if place >= 0 and target.prints[place] == wanted else j


def _class_extras(
    source: Window, target: Window, cut: int, start: int, match: _Match, rules: Rules
) -> Counter[ExtraClass]:
    """Count by class the target records from T on that were not matched."""
    end = len(target)
    if rules.growing:  # what follows the last match is newer than the preview
        end = match.last + 1 if match.last is not None else start
    unmatched = [i for i in range(start, end) if i not in match.used]
    if not unmatched:
        return Counter()
    unread = set(source.prints[cut:])
    read_before = set(source.prints[:cut]) | set(target.prints[:start])
    last_of_key = {key: i for i, key in enumerate(target.keys)}
    extras: Counter[ExtraClass] = Counter()
    for i in unmatched:
        record, key = target.prints[i], target.keys[i]
        if record in unread:
            extras["duplicate"] += 1
        elif record in read_before:
            extras["copy_before"] += 1
        elif record in rules.aborted:
            extras["phantom_aborted"] += 1
        elif rules.compacted and key != NO_KEY and last_of_key[key] > i:
            extras["superseded"] += 1
        else:
            extras["new"] += 1
    return extras


def _refusal(
    source: Window, target: Window, cut: int, match: _Match, context: int | None, rules: Rules
) -> Refused | None:
    """Return why no offset is safe, or None."""
    if match.missing:
        return _missing(source, target, match, rules)
    at_end = cut == len(source)
    if at_end and context is None:
        return Refused(
            "the position is at the log's end, but the newest records of the two logs differ", None
        )
    if rules.caught_up or rules.growing:
        return None
    if at_end:
        return Refused("the position is at the log's end, and nothing proves that the mirror is level", None)
    if context is None or context < _LEAST_CONTEXT:
        return Refused(
            "too few records before the position are equal, and nothing proves that the mirror is level", None
        )
    if source.prints[-1] in set(source.prints[:-1]):
        return Refused("the newest records repeat, so content cannot show that the mirror is level", None)
    return None


def _missing(source: Window, target: Window, match: _Match, rules: Rules) -> Refused:
    places = [source.offsets[i] for i in match.missing]
    source_range = (NextOffset(min(places)), NextOffset(max(places) + 1))
    on_target = set(target.prints)
    count = len(places)
    if rules.compacted and all(source.tombstones[i] for i in match.missing):
        reason = f"the target's compaction has removed {count} unread deletions"
    elif all(source.prints[i] in on_target for i in match.missing):
        reason = f"{count} unread records stand in another order on the target"
    else:
        reason = f"{count} unread records are not on the target"
    return Refused(reason, source_range)


def _verdict_at(
    offset: NextOffset, extras: Counter[ExtraClass], absent: Counter[ExtraClass]
) -> Exact | Bounded:
    return Bounded(offset, dict(extras), dict(absent)) if extras or absent else Exact(offset)
