"""The guard of a query's start: is what it will read the log that its checkpoint belongs to?

Spark asks none of this: a cluster of the same topic names is read at the old numbers, silently. First the
checks of a whole run, then ``guard`` for one query, then the rules for one source, which are pure.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.errors import (
    AS_IT_WAS,
    DROPPED,
    NOT_STARTED,
    QUERY_NAME,
    QUERY_NAME_REFUSED_BEFORE,
    SOURCES_CHANGED,
    UNSUPPORTED_MODE,
    QueryUnknownError,
)
from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.checkpoint.inventory import list_batches, remove_unfinished_writes
from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.kafka.errors import PartitionSetError
from airflow_flinkstyle.kafka.positions import require_resumable, require_same_log
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.errors import CHECKPOINT_LOST
from airflow_flinkstyle.protocol.query_records import Loss, SourceIdentity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.spark import Describe, StreamingSource
    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.protocol.records import Heartbeat, TakeoverOrder
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.storage.base import ObjectStore

OpenCheckpoint = Callable[[str], "ObjectStore"]
"""Opens the checkpoint of a query, by its name."""
Expected = dict[str, dict[str, list[SourceIdentity]]]
"""Query name -> source -> every identity that was recorded for it."""
_NO_TOPICS = "{}"
"""Offsets of a Kafka source without a partition."""
_MOST_SHOWN = 2000
"""Characters of offsets in a message."""
log = logging.getLogger(__name__)


def identities_of(manifest: Manifest) -> Expected:
    """Return what each source of a savepoint reads."""
    return {
        snapshot.name: {
            source: [SourceIdentity(cluster_id=position.cluster_id, topic_ids=position.topic_ids)]
            for source, position in snapshot.kafka.items()
        }
        for snapshot in manifest.queries
    }


def queries_to_continue(
    open_checkpoint: OpenCheckpoint, order: TakeoverOrder, manifest: Manifest | None, prior: Heartbeat | None
) -> set[str]:
    """Return the queries whose checkpoints are there: restored, adopted, or this run's own."""
    named = {snapshot.name for snapshot in manifest.queries} if manifest else set()
    named |= set(order.closed_at or ()) | set(prior.queries if prior else ())
    return {name for name in named if open_checkpoint(name).head("metadata") is not None}


def require_not_refused(last: Heartbeat | None) -> None:
    """Check that an earlier incarnation was not refused for its names of queries.

    Now the script may begin with the query that was refused: without the earlier one nothing would show it.

    Raises:
        FlinkstyleError: ``QUERY_NAME`` if it was.
    """
    if last is not None and last.error is not None and last.error[0] == QUERY_NAME.code:
        raise QUERY_NAME_REFUSED_BEFORE.error(text=last.error[1])


def require_there(open_checkpoint: OpenCheckpoint, last: Heartbeat | None) -> None:
    """Check that the checkpoints of a run still hold the queries that committed batches in them.

    Args:
        open_checkpoint: Opens a checkpoint, by its query.
        last: The last heartbeat of the run, or incarnation, that ran in them; None if none did.

    Raises:
        FlinkstyleError: ``CHECKPOINT_LOST`` if one is gone: Spark would begin the query anew, silently.
    """
    committed = last.batches() if last is not None else {}
    lost = [name for name in committed if open_checkpoint(name).head("metadata") is None]
    if not lost:
        return
    raise CHECKPOINT_LOST.with_text(
        f"Checkpoint {open_checkpoint(lost[0]).uri} was expected to hold query {lost[0]} at batch "
        f"{committed[lost[0]]}, as its last run recorded, found no query there.",
        remedy="Bring the checkpoint back; or start the job from a savepoint (start_from='savepoint').",
    )


def require_not_dropped(query: JobQuery, dropped: Collection[str]) -> None:
    """Check that the script starts no query that its job has dropped.

    Raises:
        BadInputError: If it does: savepoints taken until then would lack it.
    """
    if query.name in dropped:
        raise BadInputError(
            f"The script was expected to start none of the queries that {DROPPED} names, found {query.name}.",
            state_after=NOT_STARTED,
            remedy="Take the name out of that setting, or the query out of the script.",
        )


def require_known(query: JobQuery, to_continue: Collection[str], script: Collection[str]) -> None:
    """Check that a query without a checkpoint is a new one, not an old one under another name.

    Raises:
        QueryUnknownError: If it has none while a query with state has not been started by the script.
    """
    waiting = sorted(set(to_continue) - set(script))
    if query.name in to_continue or not waiting or query.checkpoint.head("metadata") is not None:
        return
    raise QueryUnknownError(
        f"The script was expected to continue the queries {', '.join(sorted(to_continue))}, found "
        f"{query.name}, which has no checkpoint and would start from nothing, without the state of "
        f"{', '.join(waiting)}.",
        state_after=NOT_STARTED,
        remedy="Keep the query's name; start queries that are new after all that are not; or name those that "
        f"the job is to have no more in {DROPPED}.",
    )


def require_replayable(sources: Iterable[StreamingSource]) -> None:
    """Check that every source can be read again from an offset.

    Raises:
        FlinkstyleError: ``UNSUPPORTED_MODE`` if one is a socket: Spark plans again a batch whose rows are
            gone.
    """
    if any("socket" in source.provider.lower() for source in sources):
        raise UNSUPPORTED_MODE.error(
            mode="the source socket, which cannot be read again from a savepoint",
            remedy="Write what comes over the socket to Kafka or to files, and read those.",
        )


def guard(describe: Describe, query: JobQuery, expected: Mapping[str, list[SourceIdentity]]) -> None:
    """Check every Kafka source of the query, and record what they read.

    A planned batch that is refused is left as it is, the first one after a restore too: its records were
    there when it was planned, so a sink may have seen them under its number.

    Args:
        describe: Describes the cluster of a source.
        query: About to start.
        expected: By source, the identities recorded elsewhere.

    Raises:
        FlinkstyleError: If Spark must not start it; nothing was written.
    """
    positions = read_positions(query.checkpoint)
    require_same_sources(query.name, query.sources, positions)
    found: dict[str, SourceIdentity] = {}
    lost: dict[str, Loss] = {}
    for source in query.sources:
        if source.is_kafka:
            key = source.key(positions.log_version)
            recorded = [*expected.get(key, []), *([query.identities[key]] if key in query.identities else [])]
            view, rules = describe(source), SourceRules.of(source)
            found[key] = check_source(
                query.name, key, view, expected=recorded, positions=positions, rules=rules
            )
            if (loss := loss_of(key, view, positions)) is not None:
                lost[key] = loss
            log.info("Query %s, source %s reads cluster %s", query.name, key, view.cluster_id)
            if (spot := found[key].blind_spot) is not None:
                log.warning("Query %s, source %s: %s", query.name, key, spot)
    query.identities, query.lost = found, _counted(query, lost)


def _counted(query: JobQuery, lost: Mapping[str, Loss]) -> dict[str, Loss]:
    """Add the loss of this start to that of earlier ones; a start that is repeated counts once."""
    done, counted = query.read_committed(), dict(query.lost)
    for source, loss in lost.items():
        before = counted.get(source)
        if before is None or before.batch_id == done:
            counted[source] = replace(loss, batch_id=done)
        else:
            topics = tuple(sorted({*before.topics, *loss.topics}))
            counted[source] = Loss(offsets=before.offsets + loss.offsets, topics=topics, batch_id=done)
        log.warning("Query %s, source %s: %s", query.name, source, loss)
    return counted


def follow(describe: Describe, query: JobQuery) -> None:
    """Update the recorded topics of sources by the newest batch: topics of a pattern join and leave.

    The id of a topic that joined is asked for once. If that fails it is recorded as not known: the next
    start, or savepoint of the running query, asks again.
    """
    patterns = [source for source in query.sources if source.is_kafka and source.follows_pattern]
    try:
        newest = read_positions(query.checkpoint).newest if patterns else None
    except FlinkstyleError as error:  # Spark may delete and write logs meanwhile
        log.info("Query %s: its newest batch could not be read: %s", query.name, error.problem)
        return
    if newest is None:
        return
    for source in patterns:
        key = source.key(newest.version)
        recorded = query.identities.get(key)
        if recorded is None or key not in newest.sources:
            continue
        topics = newest.kafka_offsets(key).topics
        if topics == recorded.topic_ids.keys():
            continue
        joined, now = topics - recorded.topic_ids.keys(), recorded.of(topics)
        if joined:
            now = _with_ids(describe, source, now)
        log.info("Query %s, source %s reads the topics %s now", query.name, key, ", ".join(sorted(topics)))
        query.identities = {**query.identities, key: now}


def _with_ids(describe: Describe, source: StreamingSource, now: SourceIdentity) -> SourceIdentity:
    try:
        topics = describe(source).topics
    except FlinkstyleError as error:
        log.warning("The ids of topics that joined are not known: %s", error.problem)
        return now
    ids = {
        topic: topic_id or (topics[topic].topic_id if topic in topics else None)
        for topic, topic_id in now.topic_ids.items()
    }
    return replace(now, topic_ids=ids)


def clear(query: JobQuery) -> None:
    """Remove unfinished writes, with which Spark would not start; only after the takeover."""
    removed = remove_unfinished_writes(query.checkpoint)
    if removed:
        log.warning("Query %s: a killed run left %s, deleted", query.name, ", ".join(removed))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPositions:
    """The offset logs that Spark will continue from."""

    committed: OffsetLog | None
    """Of the newest committed batch; None before the first commit."""
    planned: OffsetLog | None
    """Of the batch that was planned and is not committed: Spark runs it with these offsets."""
    before: OffsetLog | None = None
    """Of the batch before the committed one; None if it is not there, or not needed."""

    @property
    def newest(self) -> OffsetLog | None:
        """The log whose offsets must list exactly the live partitions."""
        return self.planned or self.committed

    def offsets(self, key: str) -> Offsets:
        """Return where a Kafka source begins to read: after the last committed batch."""
        log = self.committed if self.committed is not None and key in self.committed.sources else self.newest
        return log.kafka_offsets(key) if log is not None and key in log.sources else Offsets()

    def lost(self, key: str) -> Offsets:
        """Return what a source had in an earlier log, if it has nothing in the newest one; else empty."""
        newest = self.newest
        if newest is None or key not in newest.sources or newest.kafka_offsets(key):
            return Offsets()
        earlier = [log for log in (self.committed, self.before) if log is not None and key in log.sources]
        return next((found for log in earlier if (found := log.kafka_offsets(key))), Offsets())

    @property
    def log_version(self) -> int:
        """Version of the offset log; 1 for a checkpoint that does not exist yet."""
        return self.newest.version if self.newest else 1


def read_positions(checkpoint: ObjectStore) -> CheckpointPositions:
    """Read the offsets that Spark would resume from; both None if there is no checkpoint yet."""
    commits, offsets = list_batches(checkpoint, "commits"), list_batches(checkpoint, "offsets")
    done, planned = max(commits, default=-1), max(offsets, default=-1)

    def read(batch: int) -> OffsetLog | None:
        return offset_log.parse(checkpoint.read(f"offsets/{batch}").decode()) if batch in offsets else None

    found = CheckpointPositions(committed=read(done), planned=read(planned) if planned > done else None)
    if found.newest is not None and _NO_TOPICS in found.newest.sources.values():
        return replace(found, before=read(done - 1))
    return found


def require_same_sources(
    query: str, sources: Sequence[StreamingSource], positions: CheckpointPositions
) -> None:
    """Check that the script reads as many sources as the checkpoint represents.

    Raises:
        FlinkstyleError: ``SOURCES_CHANGED`` if it does not; Spark would swap or forget positions.
    """
    newest = positions.newest
    if newest is None:
        return
    if newest.version == 1 and len(newest.sources) != len(sources):
        raise SOURCES_CHANGED.with_text(
            f"Query {query} was expected to read {len(newest.sources)} sources like its checkpoint, "
            f"found {len(sources)} in the script.",
            remedy="Resume with a script that reads the same sources in the same order, or from a savepoint "
            "whose sources were changed with it (ChangeSourcesOperator).",
        )
    named = {source.key(newest.version) for source in sources}
    if newest.version > 1 and newest.sources.keys() - named and named - newest.sources.keys():
        raise SOURCES_CHANGED.with_text(
            f"Query {query} was expected to name its sources {sorted(newest.sources)} like its checkpoint, "
            f"found {sorted(named)} in the script: a renamed source would start without its position.",
            remedy="Keep the names; add or remove sources in two steps.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRules:
    """Which changes of its log a source's own options accept: it continues as Spark would."""

    follows_pattern: bool = False
    """Topics join, and are read from their beginning (``subscribePattern``)."""
    is_assigned: bool = False
    """The script names each partition (``assign``): none joins by itself."""
    accepts_loss: bool = False
    """Records that are deleted before they are read are skipped (``failOnDataLoss`` false)."""

    @staticmethod
    def of(source: StreamingSource) -> SourceRules:
        """Read them from the options."""
        return SourceRules(
            follows_pattern=source.follows_pattern,
            is_assigned=source.option("assign") is not None,
            accepts_loss=source.accepts_loss,
        )


def check_source(
    query: str,
    key: str,
    view: ClusterView,
    *,
    expected: Iterable[SourceIdentity],
    positions: CheckpointPositions,
    rules: SourceRules = SourceRules(),  # frozen
) -> SourceIdentity:
    """Check one Kafka source against the live cluster; returns the identity to record.

    Args:
        query: Name of the query, for messages.
        key: The source in the offset log.
        view: The cluster that the effective options reach, with the partitions subscribed to.
        expected: Identities recorded by an earlier run or a savepoint.
        positions: The checkpoint's offsets.
        rules: What may come and go.

    Raises:
        FlinkstyleError: ``CLUSTER_MISMATCH``, ``TopicRecreatedError``, ``PartitionSetError``,
            ``OFFSET_BEFORE_START``, ``OFFSET_BEYOND_END``, ``SOURCES_CHANGED``.
    """
    where = f"source {key} of query {query}"
    try:
        for identity in expected:
            require_same_log(
                identity.cluster_id, identity.topic_ids, view, where, may_be_gone=rules.follows_pattern
            )
        _check_positions(where, key, view, positions, rules)
    except FlinkstyleError as error:
        raise error.rephrased(
            problem=f"{_capitalized(where)}: {error.problem}", state_after=AS_IT_WAS
        ) from error
    return SourceIdentity(
        cluster_id=view.cluster_id, topic_ids={topic: found.topic_id for topic, found in view.topics.items()}
    )


def loss_of(key: str, view: ClusterView, positions: CheckpointPositions) -> Loss | None:
    """Return which unread records of a source the log no longer has; None if it has all. Pure.

    The caller sets its ``batch_id``.
    """
    offsets = positions.offsets(key)
    logs = {tp: log for tp in offsets if (log := view.log_range(tp)) is not None}
    deleted = sum(max(0, log.start - offsets[tp]) for tp, log in logs.items())
    gone = tuple(sorted(offsets.topics - view.topics.keys()))
    return Loss(offsets=deleted, topics=gone, batch_id=None) if deleted or gone else None


def _check_positions(
    where: str, key: str, view: ClusterView, positions: CheckpointPositions, rules: SourceRules
) -> None:
    if lost := positions.lost(key):
        raise _lost_positions(lost)
    newest = positions.newest
    if newest is None or key not in newest.sources or not (offsets := newest.kafka_offsets(key)):
        return  # nothing was read yet: Spark starts where startingOffsets says
    _require_topics(where, offsets, view, rules)
    _require_inside(where, offsets, view, rules)
    begun = positions.committed
    if positions.planned is not None and begun is not None and key in begun.sources:
        # Only the planned batch lists the partitions that came with it.
        _require_inside(where, offsets | begun.kafka_offsets(key), view, rules)


def _require_inside(where: str, offsets: Offsets, view: ClusterView, rules: SourceRules) -> None:
    """Check that positions lie in their logs, leaving out what the rules accept to be gone."""
    there = {tp: offset for tp, offset in offsets.items() if tp[0] in view.topics}
    if rules.accepts_loss:
        starts = view.starts
        there = {tp: max(offset, starts.get(tp, offset)) for tp, offset in there.items()}
    if there or not rules.follows_pattern:
        require_resumable(Offsets(there), view, where)


def _require_topics(where: str, offsets: Offsets, view: ClusterView, rules: SourceRules) -> None:
    listed = offsets.topics
    not_read = sorted(listed - view.topics.keys())
    if not_read and not (rules.follows_pattern and rules.accepts_loss):
        accepted = (
            "; or, if they were deleted and what was unread in them is given up, set failOnDataLoss=false"
            if rules.follows_pattern
            else ""
        )
        raise SOURCES_CHANGED.with_text(
            f"the checkpoint holds offsets of the topics {', '.join(not_read)}, "
            f"but the script reads {', '.join(sorted(view.topics)) or 'no topic'}.",
            remedy="Resume with a script that reads the same topics, or rename them in an offset rewrite"
            f"{accepted}.",
        )
    new = view.partitions - offsets.keys()
    # Partitions that come to a topic are read from their beginning, and so are those of a pattern's topics.
    added = {tp for tp in new if rules.is_assigned or not (tp[0] in listed or rules.follows_pattern)}
    if added:
        raise PartitionSetError.between(where, missing=added, unknown=())


def _lost_positions(lost: Offsets) -> FlinkstyleError:
    """Build the error for a log without offsets that follows one with some.

    Spark wrote that until 3.3.2 and 3.4 when Kafka named no partition for a moment (SPARK-41375); it takes
    every partition for a new one then, and reads it again from its beginning.
    """
    return SOURCES_CHANGED.with_text(
        f"the newest batch of the checkpoint holds no offsets, but the batch before had those of the topics "
        f"{', '.join(sorted(lost.topics))}: every record that the cluster still has would be read again.",
        remedy="Resume from a savepoint of an earlier batch; or give the source the positions that it had "
        f"(ChangeSourcesOperator): {json.dumps(lost.by_topic)[:_MOST_SHOWN]}.",
    )


def _capitalized(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
