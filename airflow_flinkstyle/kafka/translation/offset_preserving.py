"""Verify that a mirror keeps offsets, instead of assuming it. Pure.

Cluster Linking and the like give every record the offset it has on the source. Then a position stays as
it is, and nothing about repeating records or unknown writers is ambiguous: at each compared offset, from
some records before the position to both ends, both logs must hold the same record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.fingerprints import NO_KEY
from airflow_flinkstyle.kafka.translation.proof import Proof
from airflow_flinkstyle.kafka.verdict import Bounded, Exact, ExtraClass, Refused, Verdict
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from airflow_flinkstyle.kafka.fingerprints import Fingerprints
    from airflow_flinkstyle.kafka.translation.alignment import Rules


@dataclass(slots=True)
class _LogDifference:
    """Offsets at which the logs differ, and what compaction may have done."""

    other: list[int] = field(default_factory=list)
    """Both hold a record, not the same."""
    missing: list[int] = field(default_factory=list)
    """Only the source holds one."""
    strange: list[int] = field(default_factory=list)
    """Only the target holds one."""
    extras: Counter[ExtraClass] = field(default_factory=Counter)
    absent: Counter[ExtraClass] = field(default_factory=Counter)


def verify_offsets_preserved(
    source: Fingerprints, target: Fingerprints, position: NextOffset, rules: Rules
) -> Proof:
    """Prove that both logs hold the same records at the same offsets.

    Args:
        source: From some records before ``position`` (the context) to the log's end.
        target: The same offsets, to its own end.
        position: Next offset to read on the source.
        rules: See ``Rules``.
    """
    cut = bisect_left(source.offsets, position)
    low = max(source.low, target.low)
    found = _LogDifference()
    if source.offsets != target.offsets or source.prints != target.prints:
        found = _compare(source, target, low, position, rules)
    unread = len(source) - cut
    absent = found.absent.total()
    verdict = _refusal(found, target, position)
    if verdict is None:
        inexact = found.extras or found.absent
        verdict = Bounded(position, dict(found.extras), dict(found.absent)) if inexact else Exact(position)
    return Proof(
        verdict=verdict,
        unread=unread,
        matched=unread - absent - sum(offset >= position for offset in (*found.other, *found.missing)),
        context=cut - bisect_left(source.offsets, low),
        digest=sha256(memoryview(source.prints)[cut:]).hexdigest(),
        extras=dict(found.extras),
        absent=dict(found.absent),
    )


def _compare(
    source: Fingerprints, target: Fingerprints, low: int, position: NextOffset, rules: Rules
) -> _LogDifference:
    found = _LogDifference()
    here = {offset: i for i, offset in enumerate(source.offsets) if offset >= low}
    there = {offset: i for i, offset in enumerate(target.offsets) if offset >= low}
    newest_here = _newest(source) if rules.compacted else {}
    newest_there = _newest(target) if rules.source_compacted else {}
    for offset, i in here.items():
        j = there.get(offset)
        if j is None and rules.compacted and (name := _compacted(source, i, newest_here)):
            if offset >= position:
                found.absent[name] += 1
        elif j is None:
            found.missing.append(offset)
        elif source.prints[i] != target.prints[j]:
            found.other.append(offset)
    for offset, j in there.items():
        if offset in here or (rules.growing and offset >= source.high):
            continue
        if rules.source_compacted and _compacted(target, j, newest_there):
            found.extras["superseded"] += offset >= position
        else:
            found.strange.append(offset)
    found.extras += Counter()  # drops the classes with a count of 0
    return found


def _newest(fingerprints: Fingerprints) -> dict[int, int]:
    return {key: i for i, key in enumerate(fingerprints.keys)}


def _compacted(fingerprints: Fingerprints, index: int, newest: dict[int, int]) -> ExtraClass | None:
    """Return why compaction may have removed a record on the other side, or None."""
    key = fingerprints.keys[index]
    if key != NO_KEY and newest[key] > index:
        return "superseded"
    return "tombstone" if fingerprints.tombstones[index] else None


def _refusal(found: _LogDifference, target: Fingerprints, position: NextOffset) -> Verdict | None:
    if position > target.high or position < target.log_start:
        reason = f"the mirror keeps offsets, but its log goes from {target.log_start} to {target.high}"
        return Refused(reason, None)
    for offsets, what in (
        (found.other, "are others on the target"),
        (found.missing, "are not on the target"),
        (found.strange, "are on the target only"),
    ):
        if offsets:
            source_range = (NextOffset(min(offsets)), NextOffset(max(offsets) + 1))
            return Refused(f"the mirror should keep offsets, but {len(offsets)} records {what}", source_range)
    return None
