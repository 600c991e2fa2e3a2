"""Translate positions between two live clusters, with proof: reads both, writes nothing.

In this order: identity, MirrorMaker's position, ends, limits, ranges of both sides (widened
fourfold until they decide), proof, and a second snapshot to notice what moved meanwhile.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.kafka.cluster import (
    ClusterView,
    first_offsets_since,
    require_positions,
    topic_settings,
)
from airflow_flinkstyle.kafka.errors import CLUSTER_MISMATCH
from airflow_flinkstyle.kafka.fingerprints import NO_TIME, Fingerprints
from airflow_flinkstyle.kafka.mirror.lag import lag_above, missing_position
from airflow_flinkstyle.kafka.reading import Identity, read_fingerprints
from airflow_flinkstyle.kafka.translation.alignment import Rules, Widen
from airflow_flinkstyle.kafka.translation.cluster_snapshot import moved_between, take_snapshot
from airflow_flinkstyle.kafka.translation.offset_preserving import verify_offsets_preserved
from airflow_flinkstyle.kafka.translation.pairs import Pair, batches, lengthen, read_pairs
from airflow_flinkstyle.kafka.translation.proof import Proof, aborted_among, needs_aborted, prove_position
from airflow_flinkstyle.kafka.verdict import Refused, Verdict, describe, offset_of
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from airflow_flinkstyle.kafka.cluster import LogRange, TopicSettings
    from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.kafka.translation.alignment import Side
    from airflow_flinkstyle.kafka.translation.cluster_snapshot import ClusterSnapshot
    from airflow_flinkstyle.kafka.translation.request import ProofRequest
    from airflow_flinkstyle.kafka.verdict import ExtraClass
    from airflow_flinkstyle.types import NextOffset, TopicPartition

_MOST_READ_BACK = 20_000_000
"""Target offsets read to find first copies, all partitions together; each has an equal share."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was compared for one partition, and the verdict."""

    topic: str
    partition: int
    target_topic: str
    position: int
    """Next offset to read on the source."""
    verdict: Verdict
    source_cluster_id: str | None
    target_cluster_id: str | None
    source_topic_id: str | None
    target_topic_id: str | None
    source_log: tuple[int, int] | None
    """Start and end of the source's log; None if there is no such partition."""
    target_log: tuple[int, int] | None
    mirrored_to: NextOffset | None
    """The first source offset that MirrorMaker has not replicated, by its own positions."""
    unread_records: int | None
    """Source records from the position on; None if refused before anything was read."""
    matched_records: int | None
    context_records: int | None
    """Records just before the position that equal those before the target offset."""
    digest: str | None
    """SHA-256 over the unread records' fingerprints, in order."""
    extras: Mapping[ExtraClass, int]
    absent: Mapping[ExtraClass, int]
    source_range: tuple[int, int] | None
    """Offsets read, end exclusive; the end is the log's."""
    target_range: tuple[int, int] | None

    def to_json(self) -> str:
        """Render for the savepoint's manifest."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        fields |= {"verdict": describe(self.verdict), "target_offset": offset_of(self.verdict)}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The translated positions of one source."""

    target: ClusterView
    """The target as it was when the records were compared."""
    evidence: Mapping[TopicPartition, Evidence]
    """By source partition."""
    settled: bool
    """False for a preview made while producers were at work."""

    @property
    def verdicts(self) -> dict[TopicPartition, Verdict]:
        """The verdict per source partition."""
        return {tp: entry.verdict for tp, entry in self.evidence.items()}


def translate_positions(source: KafkaCluster, target: KafkaCluster, request: ProofRequest) -> Translation:
    """Translate the positions of a source, all partitions in one go.

    Returns:
        A verdict and the evidence per source partition. Whatever is not sure for one partition is
        its ``Refused``; what makes the whole call senseless is an error.

    Raises:
        FlinkstyleError: ``CLUSTER_MISMATCH`` if the source is another cluster than the savepoint's.
        TopicMissingError: If a topic does not exist on one of the clusters.
        MirrorPositionMissingError: If MirrorMaker's offsets topic does not exist.
    """
    require_positions(request.positions)
    began = time.monotonic()
    topics = sorted(request.positions.topics)
    attempt = 0
    while True:
        attempt += 1
        snapshot = take_snapshot(source, target, request, topics)
        _require_cluster(source, request, snapshot.source)
        evidence = prove_round(
            Round(
                source=source,
                target=target,
                request=request,
                snapshot=snapshot,
                settings=topic_settings(source, topics),
                target_settings=topic_settings(target, snapshot.target.topics.keys()),
            )
        )
        moved: dict[TopicPartition, Refused] = {}
        if not request.preview:
            verdicts = {tp: found.verdict for tp, found in evidence.items()}
            moved = moved_between(request, snapshot, take_snapshot(source, target, request, topics), verdicts)
        if not moved or attempt >= request.attempts:
            break
        log.info("Attempt %d: %d partitions moved while they were compared", attempt, len(moved))
    for tp, refused in moved.items():
        evidence[tp] = replace(evidence[tp], verdict=refused)
    log.info("Compared %d partitions in %.1f s", len(evidence), time.monotonic() - began)
    return Translation(
        target=snapshot.target,
        evidence=evidence,
        settled=not request.preview,
    )


def _require_cluster(source: KafkaCluster, request: ProofRequest, view: ClusterView) -> None:
    if ids_differ(request.cluster_id, view.cluster_id):
        raise CLUSTER_MISMATCH.error(
            what=f"The savepoint read through {source.name}",
            expected=request.cluster_id,
            found=view.cluster_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One attempt over all partitions."""

    source: KafkaCluster
    target: KafkaCluster
    request: ProofRequest
    snapshot: ClusterSnapshot
    settings: Mapping[str, TopicSettings]
    target_settings: Mapping[str, TopicSettings]

    def target_of(self, tp: TopicPartition) -> TopicPartition:
        """Return the target's name of a source partition."""
        return self.request.target_topic(tp[0]), tp[1]

    @property
    def preserves_offsets(self) -> bool:
        """Whether records have the same offsets on both sides."""
        return self.request.mirror is not None and self.request.mirror.keeps_offsets

    def ranges(self, tp: TopicPartition) -> tuple[LogRange, LogRange]:
        """Return the log ranges of a partition that ``_static_refusal`` has let pass."""
        source, target = (
            self.snapshot.source.log_range(tp),
            self.snapshot.target.log_range(self.target_of(tp)),
        )
        if source is None or target is None:  # pragma: no cover - refused before
            raise KeyError(tp)
        return source, target

    def identity(self, tp: TopicPartition) -> Identity:
        """Return what makes two records of a partition and its copy the same."""
        source, target = self.settings[tp[0]], self.target_settings[self.target_of(tp)[0]]
        mirror = self.request.mirror
        return Identity(
            dated=not (source.log_append_time or target.log_append_time),
            keyed=source.compacted or target.compacted,
            ignored_headers=self.request.ignored_headers.union(mirror.ignored_headers if mirror else ()),
        )

    @property
    def sole_writer(self) -> bool:
        """Whether nobody but the mirror writes to the target."""
        return self.request.mirror is not None and self.request.mirror.sole_writer

    def rules(self, pair: Pair, oldest_equal: int | None, oldest_copy: int | None) -> Rules:
        """Return what holds for both logs of a partition that got past the mirror check."""
        return Rules(
            compacted=self.target_settings[pair.target_tp[0]].compacted,
            source_compacted=self.settings[pair.tp[0]].compacted,
            caught_up=self.request.mirror is not None and not self.request.preview,
            sole_writer=self.sole_writer,
            dated=pair.identity.dated,
            growing=self.request.preview,
            oldest_equal=oldest_equal,
            oldest_copy=oldest_copy,
            exhausted=pair.exhausted,
        )


def prove_round(state: Round) -> dict[TopicPartition, Evidence]:
    """Decide every partition once, from one snapshot."""
    request = state.request
    refusals = {tp: refusal for tp in request.positions if (refusal := _static_refusal(state, tp))}
    unrefused = [tp for tp in request.positions if tp not in refusals]
    if request.mirror is not None and not request.preview:
        lagging = _mirror_refusals(state, request.mirror, unrefused)
        refusals.update(lagging)
        unrefused = [tp for tp in unrefused if tp not in lagging]
    evidence = {tp: _evidence(state, tp, refusal) for tp, refusal in refusals.items()}
    evidence.update(_prove_partitions(state, unrefused))
    return {tp: evidence[tp] for tp in sorted(evidence)}


def _static_refusal(state: Round, tp: TopicPartition) -> Refused | None:
    """Return why a partition cannot be translated whatever its records are, or None."""
    request, snapshot = state.request, state.snapshot
    target_tp = state.target_of(tp)
    source, target = snapshot.source.log_range(tp), snapshot.target.log_range(target_tp)
    position = request.positions[tp]
    known_id, live_id = request.topic_ids.get(tp[0]), snapshot.source.topics[tp[0]].topic_id
    if ids_differ(known_id, live_id):
        reason = f"topic {tp[0]} was created again (id {live_id}, the savepoint has {known_id})"
    elif source is None:
        reason = f"the source has no partition {tp[0]}-{tp[1]}"
    elif target is None:
        reason = f"the target has no partition {target_tp[0]}-{target_tp[1]}"
    elif position > source.end:
        reason = f"the position {position} is beyond the source's end {source.end}"
    elif position < source.start:
        reason = f"the position {position} is before the source's start {source.start}: records are deleted"
    elif source.end - position > request.most_unread:
        reason = f"{source.end - position} unread offsets are more than the limit of {request.most_unread}"
    elif not request.preview and source.last_stable < source.end:
        reason = f"a transaction is open on the source from offset {source.last_stable} on"
    elif not request.preview and target.last_stable < target.end:
        reason = f"a transaction is open on the target from offset {target.last_stable} on"
    else:
        return None
    return Refused(reason, None)


def _mirror_refusals(
    state: Round, mirror: MirrorSettings, partitions: list[TopicPartition]
) -> dict[TopicPartition, Refused]:
    mirrored = state.snapshot.mirrored
    lag = lag_above(state.source, mirror, state.snapshot.source, mirrored, partitions)
    refused = {}
    for tp, records in lag.items():
        if mirrored.get(tp, 0) > state.ranges(tp)[0].end:
            refused[tp] = Refused(
                f"MirrorMaker's position {mirrored[tp]} is beyond the source's end: it mirrored another log",
                None,
            )
        elif records and tp not in mirrored:
            refused[tp] = Refused(missing_position(mirror, state.target, [tp]), None)
        elif records:
            refused[tp] = Refused(f"MirrorMaker is {records} records behind", None)
    return refused


def _prove_partitions(state: Round, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Evidence]:
    """Read both sides of the partitions, as many at a time as memory allows."""
    request, evidence = state.request, {}
    pairs = [
        Pair.around(
            tp,
            state.target_of(tp),
            request.positions[tp],
            state.ranges(tp),
            state.identity(tp),
            longest=request.range_budget,
            same_offsets=state.preserves_offsets,
        )
        for tp in partitions
    ]
    for batch in batches(pairs, request.range_budget):
        read_pairs(state.source, state.target, batch, request.isolation)
        evidence.update(_settle(state, batch))
        for pair in batch:
            pair.forget()
    return evidence


def _settle(state: Round, pairs: Collection[Pair]) -> dict[TopicPartition, Evidence]:
    """Decide each pair whose ranges suffice; make the others longer, until all are decided."""
    evidence: dict[TopicPartition, Evidence] = {}
    undecided: dict[TopicPartition, Side] = {}
    oldest_equal, oldest_copy = _oldest_equal(state, pairs), _oldest_copy(state, pairs)
    for pair in pairs:
        if pair.deleted is not None:
            evidence[pair.tp] = _evidence(state, pair.tp, _deleted(pair), pair=pair)
            continue
        rules = state.rules(pair, oldest_equal.get(pair.tp), oldest_copy.get(pair.tp, 0))
        outcome = _decide(state, pair, rules)
        if isinstance(outcome, Evidence):
            evidence[pair.tp] = outcome
        else:
            undecided[pair.tp] = outcome.side
    too_short = [pair for pair in pairs if pair.tp in undecided]
    for batch in batches(too_short, state.request.range_budget, growth=4):
        sides: dict[Side, list[Pair]] = {}
        for pair in batch:
            sides.setdefault(undecided[pair.tp], []).append(pair)
        lengthen(state.source, state.target, sides, state.request.isolation)
        evidence.update(_settle(state, batch))
    return evidence


def _deleted(pair: Pair) -> Refused:
    topic, number = pair.tp if pair.deleted == "source" else pair.target_tp
    return Refused(
        f"records of {topic}-{number} on the {pair.deleted} were deleted while they were compared for "
        f"position {pair.position}; raise the topic's retention for the time of the migration",
        None,
    )


def _oldest_equal(state: Round, pairs: Collection[Pair]) -> dict[TopicPartition, int | None]:
    """Return the first source offset whose record may equal the newest one, by its timestamp.

    Asked only where nothing but content shows that the mirror is in sync.
    """
    if state.request.mirror is not None or state.request.preview:
        return {}
    dated = {p.tp: p.source.newest_ms for p in pairs if p.identity.dated and p.source.newest_ms >= 0}
    unknown = {p.tp: p.source.log_start for p in pairs if p.identity.dated and p.tp not in dated}
    return unknown | first_offsets_since(state.source, dated)


def _oldest_copy(state: Round, pairs: Collection[Pair]) -> dict[TopicPartition, int | None]:
    """Return the first target offset that may hold a copy of a record in the source's range.

    Asked only where others may have written between first copies and second ones; None if that is too far
    back. The answer may be the marker of a transaction: no copy is before that either.
    """
    if state.sole_writer or state.preserves_offsets:
        return {}
    short = [pair for pair in pairs if not pair.target.whole_log]
    dated = {p.target_tp: p.source.oldest_ms for p in short if 0 <= p.source.oldest_ms < NO_TIME}
    found = first_offsets_since(state.target, dated)
    share = _MOST_READ_BACK // len(state.request.positions)
    oldest: dict[TopicPartition, int | None] = {}
    for pair in short:
        oldest[pair.tp] = pair.oldest_copy(found.get(pair.target_tp, pair.target.log_start), share)
    return oldest


def _decide(state: Round, pair: Pair, rules: Rules) -> Evidence | Widen:
    if state.preserves_offsets:
        proved = verify_offsets_preserved(pair.source, pair.target, pair.position, rules)
        return _evidence(state, pair.tp, proved.verdict, proof=proved, pair=pair)
    outcome = prove_position(pair.source, pair.target, pair.position, rules)
    if isinstance(outcome, Widen):
        return outcome
    if state.request.isolation == "read_committed" and needs_aborted(outcome, pair.source, rules):
        named = _name_phantoms(state, pair, rules)
        if named is None:
            return _evidence(state, pair.tp, _deleted(pair), pair=pair)
        outcome = named
    return _evidence(state, pair.tp, outcome.verdict, proof=outcome, pair=pair)


def _name_phantoms(state: Round, pair: Pair, rules: Rules) -> Proof | None:
    """Decide once more, knowing the source's aborted records; None if they are being deleted."""
    everything = Fingerprints(low=pair.source.low, high=pair.source.high, log_start=pair.source.log_start)
    if read_fingerprints(state.source, {pair.tp: everything}, "read_uncommitted", {pair.tp: pair.identity}):
        pair.deleted = "source"
        return None
    final = replace(
        rules, aborted=aborted_among(everything, pair.source), exhausted=frozenset(("source", "target"))
    )
    outcome = prove_position(pair.source, pair.target, pair.position, final)
    if isinstance(outcome, Widen):  # pragma: no cover - both sides are exhausted
        raise TypeError
    return outcome


def _evidence(
    state: Round,
    tp: TopicPartition,
    verdict: Verdict,
    *,
    proof: Proof | None = None,
    pair: Pair | None = None,
) -> Evidence:
    target_tp = state.target_of(tp)
    source_log, target_log = state.snapshot.source.log_range(tp), state.snapshot.target.log_range(target_tp)
    return Evidence(
        topic=tp[0],
        partition=tp[1],
        target_topic=target_tp[0],
        position=state.request.positions[tp],
        verdict=verdict,
        source_cluster_id=state.snapshot.source.cluster_id,
        target_cluster_id=state.snapshot.target.cluster_id,
        source_topic_id=state.snapshot.source.topics[tp[0]].topic_id,
        target_topic_id=state.snapshot.target.topics[target_tp[0]].topic_id,
        source_log=(source_log.start, source_log.end) if source_log else None,
        target_log=(target_log.start, target_log.end) if target_log else None,
        mirrored_to=state.snapshot.mirrored.get(tp),
        unread_records=proof.unread if proof is not None else None,
        matched_records=proof.matched if proof is not None else None,
        context_records=proof.context if proof is not None else None,
        digest=proof.digest if proof is not None else None,
        extras=proof.extras if proof is not None else {},
        absent=proof.absent if proof is not None else {},
        source_range=(pair.source.low, pair.source.high) if pair is not None else None,
        target_range=(pair.target.low, pair.target.high) if pair is not None else None,
    )
