"""OffsetRewritePlan: what a rewrite would change. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.checkpoint.table_position import TablePosition
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.cluster import ClusterView
from airflow_flinkstyle.kafka.verdict import Refused, Verdict, offsets_of
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.query_records import SourceIdentity
from airflow_flinkstyle.rewrite.errors import NOTHING_WRITTEN, PLAN_FORMAT
from airflow_flinkstyle.rewrite.render import markdown_table, verdict_line
from airflow_flinkstyle.rewrite.rows import PartitionMove, SourceRef, SourceStrategy
from airflow_flinkstyle.storage.keys import Name
from airflow_flinkstyle.typed_json import MismatchError, decode, encode, stored
from airflow_flinkstyle.types import BatchId, KafkaId
from airflow_flinkstyle.wording import row

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from airflow_flinkstyle.rewrite.rows import SourceVerdicts
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest, QuerySnapshot
    from airflow_flinkstyle.types import TopicPartition

FORMAT_VERSION = 1
_PREVIEW = "Preview: producers were at work. The offsets are proved again before any is used."


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRewritePlan:
    """What a rewrite would change; the dry run prints this and applies nothing."""

    savepoint_id: Name
    job: Name
    batches: Mapping[Name, BatchId]
    """Committed batch per query: whose ``offsets/`` file is edited."""
    target: ClusterView
    """The target's identity and logs when the offsets were found; only the topics of the moves."""
    moves: tuple[PartitionMove, ...]
    planned: tuple[PartitionMove, ...] = ()
    """Where the end of a planned batch would stand."""
    settled: bool = True
    """False for a preview made while producers were at work: it may be shown, never applied."""
    evidence: Mapping[str, str] = field(default_factory=dict)
    """What the verdicts rest on, by ``query/source/topic-partition``, and by ``query/source/strategy`` what
    was dropped."""
    strategies: tuple[SourceStrategy, ...] = ()
    """How each source moves."""
    source_cluster_id: KafkaId | None = None
    """The cluster that the old positions belong to; None if it was not read."""
    tables: Mapping[str, TablePosition] = field(default_factory=dict)
    """``query/source`` -> the position of a source that is a table with versions: it stays there."""
    unread: tuple[str, ...] = ()
    """``query/source`` of the sources that move and have no position yet: they begin on the target."""

    @property
    def target_cluster_id(self) -> str | None:
        """The cluster that the new offsets belong to; None if it has no id."""
        return self.target.cluster_id

    @property
    def refused(self) -> tuple[PartitionMove, ...]:
        """Rows that block the plan."""
        return tuple(move for move in (*self.moves, *self.planned) if isinstance(move.after, Refused))

    def to_json(self) -> str:
        """Render the plan, so that what was approved is what is applied; equal plans give equal text."""
        return json.dumps({"format_version": FORMAT_VERSION, **encode(self)}, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> OffsetRewritePlan:
        """Parse a plan.

        Raises:
            FlinkstyleError: ``PLAN_FORMAT`` if it is malformed, has invalid names, or is of another
                format.
        """
        try:
            fields = json.loads(text)
            version = fields.pop("format_version")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise PLAN_FORMAT.error(expected="a JSON object with format_version", found=text) from error
        if version != FORMAT_VERSION:
            raise PLAN_FORMAT.error(expected=f"format_version {FORMAT_VERSION}", found=version)
        try:
            return decode(OffsetRewritePlan, fields)
        except MismatchError as error:
            raise PLAN_FORMAT.error(expected=f"{error.where}: {error.expected}", found=error.found) from error

    def positions(self, ref: SourceRef, *, planned: bool = False) -> Offsets:
        """Return the target offsets of one source; refused partitions are left out."""
        rows = self.planned if planned else self.moves
        return offsets_of({(m.target_topic, m.partition): m.after for m in rows if m.ref == ref})

    @property
    def sources(self) -> tuple[SourceRef, ...]:
        """The sources that move, sorted."""
        unread = {SourceRef(query=query, source=source) for query, _, source in map(_parted, self.unread)}
        return tuple(sorted(unread | {move.ref for move in self.moves}))

    def as_markdown(self) -> str:
        """Render what the approval task, the dry run and the log show: the verdict in a line, then tables."""
        preview = "" if self.settled else f" {_PREVIEW}"
        lines = [verdict_line((*self.moves, *self.planned)) + preview]
        if self.unread:
            lines += ["", f"Nothing was read yet, and begins on the target: {', '.join(self.unread)}."]
        if self.moves:
            lines += ["", *markdown_table(self.moves)]
        if self.planned:
            lines += ["", "The end of the planned batch:", ""]
            lines += markdown_table(self.planned)
        if self.strategies:
            lines += ["", "| source | strategy | holds if | then |", "|---|---|---|---|"]
            lines += [
                row([f"{w.query}/{w.source}", w.strategy, w.precondition, w.consequence])
                for w in self.strategies
            ]
        if self.tables:
            lines += ["", "| source | stays at |", "|---|---|"]
            lines += [row([source, str(position)]) for source, position in self.tables.items()]
        if (spot := self.blind_spot) is not None:
            lines += ["", f"On the target, {spot}."]
        return "\n".join(lines)

    @property
    def blind_spot(self) -> str | None:
        """What goes unnoticed on the target because it has no ids; None if it has all of them."""
        ids = {topic: view.topic_id for topic, view in self.target.topics.items()}
        return SourceIdentity(cluster_id=self.target.cluster_id, topic_ids=ids).blind_spot


def plan_rewrite(
    manifest: Manifest,
    target: ClusterView,
    verdicts: Mapping[SourceRef, SourceVerdicts],
    rename: Mapping[str, str],
    *,
    source_cluster_id: str | None = None,
    unread: Collection[SourceRef] = (),
) -> OffsetRewritePlan:
    """Return what moving the given sources to the target would change.

    Args:
        manifest: The savepoint to move.
        target: The cluster to move to, as it was for the verdicts.
        verdicts: Per source; sources left out stay where they are. A partition of the savepoint without
            a verdict becomes a refusal, a verdict for a partition the savepoint lacks a new row.
        rename: Source topic -> target topic, or several with commas; topics left out keep their name.
        source_cluster_id: The cluster that the old positions belong to, if it was read.
        unread: Sources that move, too, and have no position.

    Raises:
        BadInputError: If a named source is not a Kafka source of the savepoint.
    """
    moves: list[PartitionMove] = []
    planned: list[PartitionMove] = []
    evidence: dict[str, str] = {}
    for ref, found in sorted(verdicts.items()):
        query, position = source_position(manifest, ref)
        origins = _origins(found.chosen, position.offsets.topics, rename)
        dropped = {topic for topics in origins.values() for topic in topics}
        moves += _moves(ref, position.offsets, found.verdicts, rename, dropped)
        moves += _chosen_moves(ref, position.offsets, found.chosen, origins)
        planned += _moves(ref, planned_positions(query, ref.source), found.planned, rename, dropped)
        for (topic, number), text in sorted(found.evidence.items()):
            evidence[f"{ref}/{topic}-{number}"] = text
        if dropped and found.strategy is not None:
            evidence[f"{ref}/strategy"] = _strategy_taken(found.strategy, position, dropped)
    topics = {move.target_topic for move in moves}
    return OffsetRewritePlan(
        savepoint_id=manifest.savepoint_id,
        job=manifest.job,
        batches={query.name: query.batch_id for query in manifest.queries},
        target=target.only(topics),
        moves=tuple(moves),
        planned=tuple(planned),
        settled=all(found.settled for found in verdicts.values()),
        evidence=evidence,
        strategies=tuple(
            found.strategy for _, found in sorted(verdicts.items()) if found.strategy is not None
        ),
        source_cluster_id=source_cluster_id,
        tables={
            f"{query.name}/{source}": position
            for query in manifest.queries
            for source, position in query.tables.items()
        },
        unread=tuple(map(str, sorted(unread))),
    )


def _parted(ref: str) -> tuple[str, str, str]:
    return ref.partition("/")


def _strategy_taken(strategy: SourceStrategy, position: KafkaPosition, dropped: Collection[str]) -> str:
    """Return what a rewritten savepoint records of unproved positions: the strategy and the old ones."""
    before = encode(position.offsets.in_topics(dropped))
    fields = {**asdict(strategy), "cluster_id": position.cluster_id, "dropped": before}
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def source_position(manifest: Manifest, ref: SourceRef) -> tuple[QuerySnapshot, KafkaPosition]:
    """Return a source's query and position in the savepoint."""
    query = manifest.query(ref.query)
    position = query.kafka.get(ref.source) if query else None
    if query is None or position is None:
        known = [f"{q.name}/{source}" for q in manifest.queries for source in q.kafka]
        raise BadInputError(
            f"Savepoint {manifest.savepoint_id} has no Kafka source {ref.query}/{ref.source}, only {known}.",
            state_after=NOTHING_WRITTEN,
            remedy="Name one of these.",
        )
    return query, position


def planned_positions(query: QuerySnapshot, source: str) -> Offsets:
    """Return where the planned batch would end; empty if there is none."""
    if query.planned_offsets is None:
        return Offsets()
    return offset_log.parse(query.planned_offsets).kafka_offsets(source)


def _moves(
    ref: SourceRef,
    before: Offsets,
    verdicts: Mapping[TopicPartition, Verdict],
    rename: Mapping[str, str],
    dropped: Collection[str],
) -> Iterator[PartitionMove]:
    kept = {tp for tp in before if tp[0] not in dropped}
    for topic, number in sorted(kept | verdicts.keys()):
        after = verdicts.get((topic, number), Refused("this partition was not looked up", None))
        yield PartitionMove(
            query=ref.query,
            source=ref.source,
            topic=topic,
            target_topic=rename.get(topic, topic),
            partition=number,
            before=before.get((topic, number)),
            after=after,
        )


def _origins(
    chosen: Mapping[TopicPartition, Verdict], topics: Collection[str], rename: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return target topic -> the source's topics that lead to it, of topics with a chosen start."""
    found: dict[str, list[str]] = {target: [] for target, _ in chosen}
    for topic in sorted(topics):
        for target in map(str.strip, rename.get(topic, topic).split(",")):
            if target in found:
                found[target].append(topic)
    return found


def _chosen_moves(
    ref: SourceRef,
    before: Offsets,
    chosen: Mapping[TopicPartition, Verdict],
    origins: Mapping[str, list[str]],
) -> Iterator[PartitionMove]:
    for (target, number), after in sorted(chosen.items()):
        topics = origins[target]
        yield PartitionMove(
            query=ref.query,
            source=ref.source,
            topic=" + ".join(topics) or target,
            target_topic=target,
            partition=number,
            before=before.get((topics[0], number)) if len(topics) == 1 else None,
            after=after,
        )
