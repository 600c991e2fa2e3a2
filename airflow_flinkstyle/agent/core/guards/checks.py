"""The guard and the restore of one query, against the real cluster and the real checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.errors import (
    DROPPED,
    NOT_STARTED,
    CheckpointLostError,
    QueryNameError,
    QueryUnknownError,
    UnsupportedModeError,
)
from airflow_flinkstyle.agent.core.guards.guard import (
    SourceRules,
    check_source,
    loss_of,
    read_positions,
    require_same_sources,
)
from airflow_flinkstyle.checkpoint.inventory import remove_unfinished_writes
from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.protocol.places import MARK_KEY, place_id_of
from airflow_flinkstyle.protocol.query_records import Loss, SourceIdentity
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.spark import Describe, StreamingSource
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.records import Heartbeat, TakeoverOrder
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore

OpenCheckpoint = Callable[[str], "ObjectStore"]
"""Opens the checkpoint of a query, by its name."""
Expected = dict[str, dict[str, list[SourceIdentity]]]
"""Query name -> source -> every identity somebody recorded for it."""
log = logging.getLogger(__name__)


def expected_identities(order: TakeoverOrder, manifest: Manifest | None, prior: Heartbeat | None) -> Expected:
    """Collect what a source must read: by the caller, by the savepoint, by an earlier incarnation."""
    expected: Expected = {}

    def add(query: str, source: str, identity: SourceIdentity) -> None:
        expected.setdefault(query, {}).setdefault(source, []).append(identity)

    for query, sources in order.expected.items():
        for source, identity in sources.items():
            add(query, source, identity)
    for query, recorded in (identities_of(manifest) if manifest else {}).items():
        for source, identities in recorded.items():
            for identity in identities:
                add(query, source, identity)
    for query, beat in prior.queries.items() if prior else ():
        for source, identity in beat.sources.items():
            add(query, source, identity)
    return expected


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
    """Check that an earlier incarnation was not refused for its names.

    The script may leave out now what it has done, and begin with the query that was refused.

    Raises:
        QueryNameError: If it was.
    """
    if last is not None and last.error is not None and last.error[0] == QueryNameError.code:
        raise QueryNameError.still(last.error[1])


def require_marked(place: ObjectStore, board: JobBoard, place_id: str) -> None:
    """Check that a checkpoint location is the very place in which the job ran before.

    The mark is made before a run takes the job over, and heartbeats may not have told of its newest batches
    yet. So an empty place is not one in which nothing has happened: it is gone, or another host's disk. And
    one with a mark may be where a driver only waited, while another one ran the job elsewhere.

    Args:
        place: The location, as it is seen from here.
        board: The job's records.
        place_id: What ``current.json`` says of the place.

    Raises:
        CheckpointLostError: If it is not: queries would begin anew, or earlier, without a word.
    """
    found = "none" if place.head(MARK_KEY) is None else None
    if found is None and place_id and place_id_of(place, board) not in (None, place_id):
        found = "that of another place"
    if found is not None:
        raise CheckpointLostError(
            f"Checkpoint location {place.uri} was expected to bear the mark of the job that ran there "
            f"({MARK_KEY}), found {found}: it was deleted, or is on the disk of another machine.",
            state_after=NOT_STARTED,
            remedy="Bring it back; or start the job from a savepoint (start_from='savepoint'), or "
            "anew (start_from='fresh'), which gives up what that run has done.",
        )


def require_there(open_checkpoint: OpenCheckpoint, words: Heartbeat | None) -> None:
    """Check that the checkpoints that a driver continues in hold the queries that committed batches there.

    Args:
        open_checkpoint: Opens those.
        words: The last words of the run, or of the incarnation, that ran in them; None if none did.

    Raises:
        CheckpointLostError: If one is gone: Spark would begin the query anew, without a word.
    """
    committed = words.batches() if words is not None else {}
    lost = [name for name in committed if open_checkpoint(name).head("metadata") is None]
    if not lost:
        return
    raise CheckpointLostError(
        f"Checkpoint {open_checkpoint(lost[0]).uri} was expected to hold query {lost[0]} at batch "
        f"{committed[lost[0]]}, as its last run recorded, found no query there.",
        state_after=NOT_STARTED,
        remedy="Bring the checkpoint back; or start the job from a savepoint (start_from='savepoint').",
    )


def require_not_dropped(query: JobQuery, dropped: Collection[str]) -> None:
    """Check that the script starts no query that its job is told to have dropped.

    Raises:
        BadInputError: If it does: savepoints taken before would have left it out.
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
        QueryUnknownError: If it has none while the state of a query that the script has not named waits.
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
        UnsupportedModeError: If one is a socket: Spark plans again a batch whose rows are gone.
    """
    if any("socket" in source.provider.lower() for source in sources):
        raise UnsupportedModeError.named(
            "the source socket, which cannot be read again from a savepoint",
            "Write what comes over the socket to Kafka or to files, and read those.",
        )


def guard(describe: Describe, query: JobQuery, expected: Mapping[str, list[SourceIdentity]]) -> None:
    """Check every Kafka source of the query, and record what they read.

    A planned batch that is refused is left as it is, the first one after a restore too: its records were
    there when it was planned, so a sink may have seen them under its number.

    Args:
        describe: Looks at the cluster of a source.
        query: About to start.
        expected: By source, what others have recorded of it.

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
    """Add what is lost at this start to what earlier ones could not read; one made again counts once."""
    done, counted = query.look(), dict(query.lost)
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
    """Let what is recorded of sources follow the newest batch: topics of a pattern join and leave.

    One that joined is asked for its id once. Where that fails it is recorded as not known: the next start, or
    savepoint of the running query, asks again.
    """
    patterns = [source for source in query.sources if source.is_kafka and source.follows_pattern]
    try:
        newest = read_positions(query.checkpoint).newest if patterns else None
    except FlinkstyleError as error:  # Spark deletes old logs and writes new ones meanwhile
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
        seen = describe(source).topics
    except FlinkstyleError as error:
        log.warning("The ids of topics that joined are not known: %s", error.problem)
        return now
    ids = {
        topic: topic_id or (seen[topic].topic_id if topic in seen else None)
        for topic, topic_id in now.topic_ids.items()
    }
    return replace(now, topic_ids=ids)


def clear(query: JobQuery) -> None:
    """Make the checkpoint one that Spark starts in; only for a run that has taken the job over."""
    left = remove_unfinished_writes(query.checkpoint)
    if left:
        log.warning("Query %s: a killed run left %s, deleted", query.name, ", ".join(left))


def restore(
    manifest: Manifest,
    repository: SavepointRepository,
    open_checkpoint: OpenCheckpoint,
    *,
    complete: bool,
    precopied: Manifest | None = None,
) -> None:
    """Restore every query of a savepoint to its checkpoint; files that are there stay."""
    restored = restore_savepoint(
        manifest,
        repository,
        open_checkpoint,
        complete=complete,
        precopied=precopied,
    )
    for name, done in restored.items():
        log.info(
            "Savepoint %s, query %s: %d files written, %d kept%s",
            manifest.savepoint_id,
            name,
            done.files_written,
            done.files_kept,
            "" if complete else " (prepared)",
        )
