"""Decide every partition once, from what both logs hold at one moment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.evidence import Evidence
from airflow_flinkstyle.kafka.mirror import lag_above, missing_position
from airflow_flinkstyle.kafka.reading import read_windows
from airflow_flinkstyle.kafka.translate import Proof, Rules, Widen, translate
from airflow_flinkstyle.kafka.verdict import Refused, Verdict
from airflow_flinkstyle.kafka.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from airflow_flinkstyle.kafka.cluster import LogRange, TopicPartition, TopicSettings
    from airflow_flinkstyle.kafka.mirror import MirrorSettings
    from airflow_flinkstyle.kafka.moment import Moment
    from airflow_flinkstyle.kafka.request import ProofRequest
    from airflow_flinkstyle.kafka.settings import KafkaCluster

_CONTEXT = 32
"""Source offsets before the position that are compared too."""
_MARGIN = 64
"""Target offsets read beyond the number of unread source offsets, at first."""
_LEAST_CONTEXT = 8
"""Fewer records than this before the position widen the source window (markers fill offsets too)."""
_MOST_CONTEXT_OFFSETS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spans:
    """How many offsets of one partition to read."""

    context: int
    """On the source, before the position."""
    unread: int
    """On the source, from the position to the end."""
    target: int
    """On the target, back from the end."""

    @property
    def size(self) -> int:
        """Offsets of both sides."""
        return self.context + self.unread + self.target

    def wider(self, widen: Widen) -> _Spans:
        """Return spans with one side four times as long."""
        if widen.side == "source":
            return replace(self, context=4 * self.context)
        return replace(self, target=4 * self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One attempt over all partitions."""

    source: KafkaCluster
    target: KafkaCluster
    request: ProofRequest
    moment: Moment
    settings: Mapping[str, TopicSettings]
    target_settings: Mapping[str, TopicSettings]

    def target_of(self, tp: TopicPartition) -> TopicPartition:
        """Return the target's name of a source partition."""
        return self.request.target_topic(tp[0]), tp[1]

    def ranges(self, tp: TopicPartition) -> tuple[LogRange, LogRange]:
        """Return the log ranges of a partition that ``_static_refusal`` has let pass."""
        source, target = (
            self.moment.source.log_range(tp),
            self.moment.target.log_range(self.target_of(tp)),
        )
        if source is None or target is None:  # pragma: no cover - refused before
            raise KeyError(tp)
        return source, target

    def with_timestamp(self, tp: TopicPartition) -> bool:
        """Return whether timestamps survive the mirror and so belong to a record's identity."""
        topics = (self.settings[tp[0]], self.target_settings[self.target_of(tp)[0]])
        return not any(topic.log_append_time for topic in topics)

    def rules(self, tp: TopicPartition) -> Rules:
        """Return what holds for both logs of a partition that got past the mirror check."""
        return Rules(
            compacted=self.target_settings[self.target_of(tp)[0]].compacted,
            caught_up=self.request.mirror is not None and not self.request.preview,
            accept_lost_tombstones=self.request.accept_lost_tombstones,
            growing=self.request.preview,
        )


def prove_round(state: Round) -> dict[TopicPartition, Evidence]:
    """Decide every partition once, for one moment."""
    request = state.request
    refusals = {tp: refusal for tp in request.positions if (refusal := _static_refusal(state, tp))}
    left = [tp for tp in request.positions if tp not in refusals]
    if request.mirror is not None and not request.preview:
        lagging = _mirror_refusals(state, request.mirror, left)
        refusals.update(lagging)
        left = [tp for tp in left if tp not in lagging]
    evidence = {tp: _evidence(state, tp, refusal) for tp, refusal in refusals.items()}
    evidence.update(_prove_partitions(state, left))
    return {tp: evidence[tp] for tp in sorted(evidence)}


def _static_refusal(state: Round, tp: TopicPartition) -> Refused | None:
    """Return why a partition cannot be translated whatever its records are, or None."""
    request, moment = state.request, state.moment
    target_tp = state.target_of(tp)
    source, target = moment.source.log_range(tp), moment.target.log_range(target_tp)
    position = request.positions[tp]
    known_id, live_id = request.topic_ids.get(tp[0]), moment.source.topics[tp[0]].topic_id
    reason = None
    if known_id is not None and known_id != live_id:
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
    return Refused(reason, None) if reason else None


def _mirror_refusals(
    state: Round, mirror: MirrorSettings, partitions: list[TopicPartition]
) -> dict[TopicPartition, Refused]:
    mirrored = state.moment.mirrored
    lag = lag_above(state.source, mirror, state.moment.source, mirrored, partitions)
    refused = {}
    for tp, records in lag.items():
        if records and tp not in mirrored:
            refused[tp] = Refused(missing_position(mirror, state.target, [tp]), None)
        elif records:
            refused[tp] = Refused(f"MirrorMaker is {records} records behind", None)
        elif mirrored.get(tp, -1) >= state.ranges(tp)[0].end:
            refused[tp] = Refused(
                f"MirrorMaker's position {mirrored[tp]} is beyond the source's end: it mirrored another log",
                None,
            )
    return refused


def _prove_partitions(state: Round, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Evidence]:
    """Read both sides of the partitions, widening what does not decide, until all are decided."""
    evidence: dict[TopicPartition, Evidence] = {}
    left = {tp: _first_spans(state, tp) for tp in partitions}
    while left:
        wider: dict[TopicPartition, _Spans] = {}
        for group in _groups(left, state.request.window_budget):
            sources, targets = _read_sources(state, group), _read_targets(state, group)
            for tp, spans in group.items():
                outcome = _decide(state, tp, sources.pop(tp), targets.pop(tp))
                if isinstance(outcome, Evidence):
                    evidence[tp] = outcome
                else:
                    wider[tp] = spans.wider(outcome)
        left = wider
    return evidence


def _first_spans(state: Round, tp: TopicPartition) -> _Spans:
    unread = state.ranges(tp)[0].end - state.request.positions[tp]
    return _Spans(context=_CONTEXT, unread=unread, target=unread + _MARGIN)


def _groups(spans: Mapping[TopicPartition, _Spans], budget: int) -> Iterator[dict[TopicPartition, _Spans]]:
    """Yield groups of partitions whose windows fit into memory together."""
    group: dict[TopicPartition, _Spans] = {}
    for tp, own in spans.items():
        if group and sum(other.size for other in group.values()) + own.size > budget:
            yield group
            group = {}
        group[tp] = own
    if group:
        yield group


def _read_sources(state: Round, group: Mapping[TopicPartition, _Spans]) -> dict[TopicPartition, Window]:
    windows = {}
    for tp, spans in group.items():
        source, _ = state.ranges(tp)
        low = max(source.start, state.request.positions[tp] - spans.context)
        windows[tp] = Window(low=low, high=source.end, log_start=source.start)
    timestamps = {tp[0]: state.with_timestamp(tp) for tp in windows}
    _read(state, state.source, windows, timestamps.__getitem__)
    return windows


def _read_targets(state: Round, group: Mapping[TopicPartition, _Spans]) -> dict[TopicPartition, Window]:
    """Return the windows by source partition."""
    windows = {}
    for tp, spans in group.items():
        _, target = state.ranges(tp)
        low = max(target.start, target.end - spans.target)
        windows[state.target_of(tp)] = Window(low=low, high=target.end, log_start=target.start)
    timestamps = {state.target_of(tp)[0]: state.with_timestamp(tp) for tp in group}
    _read(state, state.target, windows, timestamps.__getitem__)
    return {tp: windows[state.target_of(tp)] for tp in group}


def _read(
    state: Round,
    cluster: KafkaCluster,
    windows: Mapping[TopicPartition, Window],
    with_timestamp: Callable[[str], bool],
) -> None:
    read_windows(
        cluster,
        windows,
        state.request.isolation,
        with_timestamp=with_timestamp,
        ignored_headers=state.request.ignored_headers,
    )


def _decide(state: Round, tp: TopicPartition, source: Window, target: Window) -> Evidence | Widen:
    position = state.request.positions[tp]
    context = sum(1 for offset in source.offsets[:_CONTEXT] if offset < position)
    span = position - source.low
    if context < _LEAST_CONTEXT and not source.whole_log and span < _MOST_CONTEXT_OFFSETS:
        return Widen(side="source")
    rules = state.rules(tp)
    outcome = translate(source, target, position, rules)
    if isinstance(outcome, Widen):
        if target.high - target.low >= state.request.window_budget:
            reason = f"not decided by the newest {state.request.window_budget} offsets of the target"
            return _evidence(state, tp, Refused(reason, None))
        return outcome
    if outcome.extras.get("new") and state.request.isolation == "read_committed":
        outcome = _name_phantoms(state, tp, source, target, rules)
    return _evidence(state, tp, outcome.verdict, proof=outcome, source=source, target=target)


def _name_phantoms(state: Round, tp: TopicPartition, source: Window, target: Window, rules: Rules) -> Proof:
    """Decide once more, knowing the source's aborted records."""
    everything = Window(low=source.low, high=source.high, log_start=source.log_start)
    read_windows(
        state.source,
        {tp: everything},
        "read_uncommitted",
        with_timestamp=lambda _: state.with_timestamp(tp),
        ignored_headers=state.request.ignored_headers,
    )
    aborted = frozenset(everything.prints) - frozenset(source.prints)
    outcome = translate(source, target, state.request.positions[tp], replace(rules, aborted=aborted))
    if isinstance(outcome, Widen):  # pragma: no cover - the same windows have just decided
        raise TypeError
    return outcome


def _evidence(
    state: Round,
    tp: TopicPartition,
    verdict: Verdict,
    *,
    proof: Proof | None = None,
    source: Window | None = None,
    target: Window | None = None,
) -> Evidence:
    target_tp = state.target_of(tp)
    target_offset = None if isinstance(verdict, Refused) else verdict.offset
    return Evidence(
        topic=tp[0],
        partition=tp[1],
        target_topic=target_tp[0],
        position=state.request.positions[tp],
        verdict=verdict,
        target_offset=target_offset,
        source_topic_id=state.moment.source.topics[tp[0]].topic_id,
        target_topic_id=state.moment.target.topics[target_tp[0]].topic_id,
        mirrored_to=state.moment.mirrored.get(tp),
        unread_records=proof.unread if proof is not None else None,
        matched_records=proof.matched if proof is not None else None,
        context_records=proof.context if proof is not None else None,
        digest=proof.digest if proof is not None else None,
        extras=proof.extras if proof is not None else {},
        absent=proof.absent if proof is not None else {},
        source_window=(source.low, source.high) if source is not None else None,
        target_window=(target.low, target.high) if target is not None else None,
    )
