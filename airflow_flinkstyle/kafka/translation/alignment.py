"""Where on the target do the records end that the job has read, and the unread ones begin? Pure.

Two places bound the answer. ``low`` is at or before F, where the mirror first reached the position. ``high``
is the latest place from which every unread record still follows. What is between them are second copies, and
what others wrote meanwhile.

Why no record that others wrote behind F is passed over, unless the answer counts it:

1. All unread records follow ``high`` in order: they were compared one by one. So only what is between F and
   the answer matters.
2. Nothing that was compared on the source is before the target's range (``oldest_copy``), so F is in it.
3. ``low`` is at or before F. F is right behind the first copy of the newest record that was read or, if the
   first pass lacks that, at the first copy of a later one. If no older record equals it, ``_from_first_pass``
   finds it, whatever else the passes lack. If one does, ``_behind_first_copies`` follows the first copies to
   F, if the pass lacks none of them.
4. From ``low`` on everything up to the answer is surely a copy, and before ``low`` every record that equals
   none of the source's is counted as passed over (``prove_position``).

What this assumes of records that do equal mirrored ones is in docs/translation.md ("What is assumed").
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from airflow_flinkstyle.kafka.verdict import Refused

if TYPE_CHECKING:
    from array import array
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.fingerprints import Fingerprints

Side = Literal["source", "target"]

_FEWER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for both logs of a partition."""

    compacted: bool = False
    """The target's ``cleanup.policy`` contains ``compact``: it may lack older versions of a key."""
    source_compacted: bool = False
    """So does the source's: the target may hold versions that the source lacks."""
    caught_up: bool = False
    """MirrorMaker's own position shows that every source record is on the target."""
    sole_writer: bool = False
    """Nobody but the mirror writes to the target: equal records are its second copies."""
    dated: bool = True
    """Records carry the producer's timestamps, so that equal ones are copies unless the source repeats."""
    growing: bool = False
    """Preview: producers are at work, so newer records may follow on the target."""
    aborted: frozenset[int] = frozenset()
    """Fingerprints of aborted source records: to recognise copies of them (``phantom_aborted``), and because
    one of them may equal the newest record."""
    oldest_equal: int | None = None
    """No source record before this offset can equal the newest one; None: nothing is known."""
    oldest_copy: int | None = 0
    """No target record before this offset can be a copy of one in the source's range; None: it is too
    far back to be read."""
    most_context: int = 8192
    """Source records before the position among which originals of the target's records are searched."""
    exhausted: frozenset[Side] = frozenset()
    """Sides whose range cannot be made longer: decide with what was read."""

    @property
    def versioned(self) -> bool:
        """Whether either log drops older versions of a key."""
        return self.compacted or self.source_compacted


@dataclass(frozen=True, slots=True, kw_only=True)
class Widen:
    """The range of one side is too short to decide."""

    side: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBounds:
    """The two bounds, as indexes into the target range."""

    low: int
    high: int


_AT_START: Final = IndexBounds(low=0, high=0)


def widen(rules: Rules, *windows: tuple[Side, Fingerprints]) -> Widen | None:
    """Return the first of the sides whose window can be made longer."""
    for side, window in windows:
        if not window.whole_log and side not in rules.exhausted:
            return Widen(side=side)
    return None


def widen_context(source: Fingerprints, cut: int, rules: Rules) -> Widen | None:
    """Ask for a longer source range, if older originals may still be searched.

    Without the originals, their copies look like others' records, or like copies of later equal records.
    Without timestamps the target is read to its start, so that the source may be, too.
    """
    return widen(rules, ("source", source)) if cut < rules.most_context or not rules.dated else None


def place_between(
    source: Fingerprints, target: Fingerprints, cut: int, high: int | None, rules: Rules
) -> IndexBounds | Widen | Refused:
    """Find both bounds.

    Args:
        source: The source's range.
        target: The target's range.
        cut: Where the unread records begin in the source's range.
        high: Where all unread records begin on the target; None if there are none.
        rules: See ``Rules``.
    """
    found = (_with_nothing_read if cut == 0 else _with_context)(source, target, cut, high, rules)
    if not isinstance(found, IndexBounds) or rules.sole_writer:
        return found
    return _if_copied_first(target, _from_first_pass(source, target, cut, found), rules)


def _with_context(
    source: Fingerprints, target: Fingerprints, cut: int, high: int | None, rules: Rules
) -> IndexBounds | Widen | Refused:
    """Bound a position that has records before it in the source's range."""
    places = _places(source, cut, target, high)
    if high is None:
        high = _end_of_read(source, cut, places, rules)
        if high is None:
            return widen(rules, ("target", target)) or Refused(
                "the position is at the log's end, but the newest records of the two logs differ", None
            )
    low = _behind_first_copies(source, target, cut, places, rules)
    if low == _FEWER and not rules.versioned:
        return Refused(
            "records that repeat are fewer on the target than on the source: some are not mirrored", None
        )
    if low is not None and low != _FEWER:
        return IndexBounds(low=low, high=high)
    if high == 0 and target.whole_log:
        return _AT_START
    wider = widen(rules, *_shorter_first(source, target))
    if wider is None and not rules.versioned and not any(places.values()):
        return _with_nothing_read_there(target, high, rules)
    return wider or _without_context(source, target, high, rules)


def _from_first_pass(source: Fingerprints, target: Fingerprints, cut: int, place: IndexBounds) -> IndexBounds:
    """Lower the bound to the first place at which any pass of the mirror may have reached the position.

    A pass may lack some of these records, but not all of them: behind the first one that it has, from the
    newest that was read on, others may have written.
    """
    head, newest = target.prints[: place.low], max(0, cut - 1)
    later = common(source, head).difference(source.prints[:newest])
    first = next((i for i, record in enumerate(head) if record in later), None)
    if first is None:
        return place
    behind = first + (cut > 0 and head[first] == source.prints[newest])
    return IndexBounds(low=min(place.low, behind), high=place.high)


def common(source: Fingerprints, records: array[int]) -> set[int]:
    """Return the records that both hold; the shorter one decides how much memory that takes."""
    short, long = sorted((source.prints, records), key=len)
    return set(short).intersection(long)


def _if_copied_first(target: Fingerprints, place: IndexBounds, rules: Rules) -> IndexBounds | Widen | Refused:
    """Accept the bounds only if no first copy of what was compared is before the target's range.

    Between first copies and second ones others may have written records that nobody has read.
    """
    oldest = rules.oldest_copy
    if target.whole_log or (oldest is not None and oldest >= target.low):
        return place
    wider = widen(rules, ("target", target)) if oldest is not None else None
    return wider or Refused(
        f"records that were read may be on the target before the newest {len(target)} too, with new ones "
        "of others between; if only the mirror writes there, set sole_writer",
        None,
    )


def _with_nothing_read_there(target: Fingerprints, high: int, rules: Rules) -> IndexBounds | Refused:
    """Bound the position where the target holds no record that was read.

    If they are deleted there, all that remains was written behind them.
    """
    if target.whole_log:
        return IndexBounds(low=0, high=high)
    if rules.sole_writer:
        return IndexBounds(low=high, high=high)
    return Refused(f"no record that was read is among the newest {len(target)} on the target", None)


def _shorter_first(source: Fingerprints, target: Fingerprints) -> list[tuple[Side, Fingerprints]]:
    windows: list[tuple[Side, Fingerprints]] = [("source", source), ("target", target)]
    return sorted(windows, key=lambda one: one[1].high - one[1].low)


def _places(source: Fingerprints, cut: int, target: Fingerprints, end: int | None) -> dict[int, list[int]]:
    """Return the target's indexes, before ``end`` if given, of each record that was read."""
    places: dict[int, list[int]] = {record: [] for record in source.prints[:cut]}
    for index, record in enumerate(target.prints[:end]):
        if record in places:
            places[record].append(index)
    return places


def _end_of_read(source: Fingerprints, cut: int, places: Mapping[int, list[int]], rules: Rules) -> int | None:
    """Return the index behind the last copy of the newest record; None if it is not there."""
    for i in range(cut - 1, -1, -1):
        if found := places[source.prints[i]]:
            return found[-1] + 1
        if not (rules.compacted and source.tombstones[i]):
            return None
    return None


def _behind_first_copies(
    source: Fingerprints, target: Fingerprints, cut: int, places: Mapping[int, list[int]], rules: Rules
) -> int | None:
    """Follow the first copies of the records that were read; None if there is nothing to begin with.

    It begins with records that the source's range holds once, and begins again at the first copy of each:
    a pass that lacks one is then followed all the same.

    Returns ``_FEWER`` if records that repeat do not all stand before the unread ones.
    """
    read = source.prints[:cut]
    times = Counter(read)
    distinct = len(times) == cut
    known = {
        record
        for record, copies in places.items()
        if times[record] == 1 and (len(copies) == 1 or (copies and (rules.dated or distinct)))
    }
    if not known and not _both_complete(source, target):
        return None
    at, fewer = (None if known else -1), False
    for record in read:
        copies = places[record]
        if at is not None:
            following = bisect_right(copies, at)
            if following < len(copies):
                at = copies[following]
            else:
                fewer = not distinct
        if record in known:
            at = copies[0]
            fewer = fewer and len(copies) > 1
    return _FEWER if fewer or at is None else at + 1


def _both_complete(source: Fingerprints, target: Fingerprints) -> bool:
    """Return whether both ranges begin with the first record that was ever written."""
    return all(fingerprints.whole_log and fingerprints.log_start == 0 for fingerprints in (source, target))


def _with_nothing_read(
    source: Fingerprints, target: Fingerprints, _: int, high: int | None, rules: Rules
) -> IndexBounds | Widen | Refused:
    """Bound the position of the source's first record, or of an empty source."""
    begun = source.whole_log and source.log_start == 0
    if high is None:
        if not len(target):
            return widen(rules, ("target", target)) or _AT_START
        if begun:  # nothing was ever mirrored
            return widen(rules, ("target", target)) or _AT_START
        if rules.sole_writer:
            return IndexBounds(low=len(target), high=len(target))
        return Refused(
            "the source holds no record any more, so nothing tells whether those of the target are copies of "
            "deleted ones or new records of others; if only the mirror writes there, set sole_writer",
            None,
        )
    if begun and (wider := widen(rules, ("target", target))):
        return wider
    if begun:  # nothing was ever read
        return _with_nothing_read_there(target, high, rules)
    if not source.whole_log and not rules.sole_writer:
        return Refused(
            f"no record that was read is among the {source.high - source.low} newest offsets of the source",
            None,
        )
    return _AT_START if high == 0 else _without_context(source, target, high, rules)


def _without_context(
    source: Fingerprints, target: Fingerprints, high: int, rules: Rules
) -> IndexBounds | Refused:
    """Decide where nothing that was read is found before the unread records."""
    first = target.prints[high] if high < len(target) else None
    if rules.sole_writer or (first is not None and rules.dated and source.prints.count(first) == 1):
        return IndexBounds(low=high, high=high)
    return Refused(
        "the records repeat or carry no time of their own, so copies cannot be told from records that others "
        "wrote to the target; if only the mirror writes there, set sole_writer",
        None,
    )
