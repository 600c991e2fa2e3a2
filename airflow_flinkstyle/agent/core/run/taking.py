"""A savepoint of the running or drained queries: the agent's part around ``savepoint.capture.take``."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.agent.core.errors import leaving
from airflow_flinkstyle.agent.core.guards.checks import read_positions
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.kafka.errors import CLUSTER_MISMATCH, TopicMissingError, TopicRecreatedError
from airflow_flinkstyle.protocol.records import Progress
from airflow_flinkstyle.savepoint.capture.patience import STORE_PATIENCE_S
from airflow_flinkstyle.savepoint.capture.table_history import written_to
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.sinks import table_format
from airflow_flinkstyle.storage.errors import StoreError
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_flinkstyle.agent.core.board.inbox import Take
    from airflow_flinkstyle.agent.core.guards.waiting import WaitingQuery
    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.run.admission import Admission
    from airflow_flinkstyle.agent.core.run.driver import Driver
    from airflow_flinkstyle.agent.core.spark import Describe
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.query_records import SourceIdentity
    from airflow_flinkstyle.protocol.records import Request
    from airflow_flinkstyle.savepoint.capture.copier import CaptureProgress
    from airflow_flinkstyle.savepoint.capture.query import FindWritten
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.types import Alignment, BatchId, Generation


class Taking:
    """Takes savepoints of this driver's queries; each shares its files with the one before."""

    def __init__(self, driver: Driver, admission: Admission) -> None:
        self._driver, self._admission = driver, admission

    def take(
        self,
        take: Take,
        *,
        stopped_at: Mapping[str, BatchId] | None,
        runs_on: bool = False,
    ) -> Manifest:
        """Take the savepoint that a request asks for, while its caller waits for it."""
        request = take.request
        if request.savepoint_id is None:
            raise AssertionError(f"request {request.request_id} names no savepoint")
        driver = self._driver
        queries, waiting = driver.queries.started_and_waiting()
        taken = self._admission.manifest = take_all(
            driver.describe,
            driver.repository,
            queries,
            waiting,
            savepoint_id=request.savepoint_id,
            spark_version=driver.spark_version,
            generation=driver.driver_run.generation,
            stopped_at=stopped_at,
            runs_on=runs_on,
            alignment=request.alignment,
            cut_id=request.cut_id,
            previous=self._admission.manifest,
            cancelled=take.cancelled.is_set,
            timeout_s=take.remaining_s(),
            progress=ProgressWriter(driver.board, driver.driver_run.generation, request),
        )
        keep_versions(driver.board, driver.repository, queries, taken)
        return taken


_PROGRESS_EVERY_S = 1.0
_STATE_AFTER = "No savepoint was made."
_CREATE = "Look whether the topic was deleted; the query reads it no more."


def take_all(
    describe: Describe,
    repository: SavepointRepository,
    queries: Sequence[JobQuery],
    waiting: Sequence[WaitingQuery],
    *,
    savepoint_id: str,
    spark_version: str,
    generation: Generation,
    stopped_at: Mapping[str, BatchId] | None,
    runs_on: bool = False,
    alignment: Alignment = "none",
    cut_id: str | None = None,
    previous: Manifest | None,
    cancelled: Callable[[], bool],
    timeout_s: float | None = None,
    progress: Callable[[CaptureProgress], None],
) -> Manifest:
    """Take a savepoint of all queries of the job.

    Args:
        describe: Describes the cluster of a source, as Spark reaches it.
        repository: Where the savepoint goes.
        queries: All that were started.
        waiting: Those that the run continues and that were not started.
        savepoint_id: Its id.
        spark_version: Version of the running Spark.
        generation: The run it is taken from.
        stopped_at: The batch at which each query was drained; None while they run.
        runs_on: The queries have continued after that batch.
        alignment: Whether these batches end at the same offsets.
        cut_id: The cut of several jobs that the savepoint is for.
        previous: An earlier savepoint of the same run.
        cancelled: Called before each file.
        timeout_s: How long the caller waits; None without a time-out.
        progress: Called after each file.

    Raises:
        FlinkstyleError: If a source's log is not the one recorded at its start, or the capture fails.
    """
    sources = [
        QuerySource(
            name=query.name,
            checkpoint=query.checkpoint,
            kafka=_kafka_logs(describe, query),
            batch_id=stopped_at[query.name] if stopped_at else None,
            runs_on=runs_on,
            sink=query.sink.name,
            sinks=query.written(),
            find_written=_find_written(query),
        )
        for query in queries
        if stopped_at is None or query.name in stopped_at  # else it was started after the cut
    ]
    for one in waiting:
        source = QuerySource.at_rest(one.name, one.checkpoint, one.status)
        # Without a stop it may be started meanwhile.
        sources.append(source if stopped_at else replace(source, batch_id=None))
    label = SavepointLabel(
        savepoint_id=savepoint_id,
        taken_at_ms=now_ms(),
        spark_version=spark_version,
        taken_from_generation=generation,
        alignment=alignment,
        cut_id=cut_id,
    )
    return take_savepoint(
        repository,
        sources,
        label,
        previous=previous,
        cancelled=cancelled,
        progress=progress,
        timeout_s=timeout_s,
        patience_s=STORE_PATIENCE_S,
    )


def _find_written(query: JobQuery) -> FindWritten | None:
    """Return a function that finds the query's newest own version in the table that it writes to."""
    kind, path = table_format(query.sink.name), query.sink.path
    if kind is None or path is None:
        return None
    return partial(written_to, lambda: query.session.sink_table(kind, query.sink.table, path).line(), kind)


def _kafka_logs(describe: Describe, query: JobQuery) -> dict[str, KafkaLog]:
    version = read_positions(query.checkpoint).log_version
    logs = {}
    for source in query.sources:
        if source.is_kafka:
            key = source.key(version)
            with leaving(_STATE_AFTER):
                view = describe(source)
            _require_unchanged(
                f"Source {key} of query {query.name}",
                query.identity(source, version),
                view,
                may_be_gone=source.follows_pattern,
            )
            logs[key] = _kafka_log(view)
    return logs


def _kafka_log(view: ClusterView) -> KafkaLog:
    return KafkaLog(
        cluster_id=view.cluster_id,
        topic_ids={topic: seen.topic_id for topic, seen in view.topics.items()},
        log_range={
            topic: {number: (log.start, log.end) for number, log in seen.partitions.items()}
            for topic, seen in view.topics.items()
        },
    )


def _require_unchanged(where: str, recorded: SourceIdentity, view: ClusterView, *, may_be_gone: bool) -> None:
    """Check that the source still reads the log that was recorded; topics of a pattern may have gone."""
    if ids_differ(recorded.cluster_id, view.cluster_id):
        raise CLUSTER_MISMATCH.with_text(
            f"{where} started on Kafka cluster {recorded.cluster_id}, "
            f"but its servers now reach cluster {view.cluster_id}.",
            state_after=_STATE_AFTER,
            remedy="Find out why the bootstrap servers changed their cluster while the query ran.",
        )
    for topic, topic_id in recorded.topic_ids.items():
        seen = view.topics.get(topic)
        if seen is None and not may_be_gone:
            raise TopicMissingError(
                TopicMissingError.on(f"of {where}", [topic]).problem, _STATE_AFTER, _CREATE
            )
        if seen is not None and ids_differ(topic_id, seen.topic_id):
            error = TopicRecreatedError.between(where, topic, expected=topic_id, found=seen.topic_id)
            raise TopicRecreatedError(error.problem, _STATE_AFTER, error.remedy)


class ProgressWriter:
    """Shows a request's progress in the store, at most once a second."""

    def __init__(self, board: JobBoard, generation: Generation, request: Request) -> None:
        self._board, self._generation, self._request = board, generation, request
        self._written_s = 0.0

    def __call__(self, progress: CaptureProgress) -> None:
        """Write it unless the last one was written within a second."""
        if time.monotonic() - self._written_s < _PROGRESS_EVERY_S:
            return
        self._written_s = time.monotonic()
        shown = Progress(
            request_id=self._request.request_id,
            files_done=progress.files_done,
            files_total=progress.files_total,
            bytes_done=progress.bytes_done,
            bytes_total=progress.bytes_total,
            at_ms=now_ms(),
        )
        try:
            self._board.write_progress(self._generation, shown)
        except StoreError as error:  # no savepoint fails for what is only shown
            log.info("The progress of the savepoint could not be shown: %s", error.problem)


KEEP: Final = "spark.flinkstyle.keepTableVersions"
log = logging.getLogger(__name__)


def keep_versions(
    board: JobBoard, repository: SavepointRepository, queries: Sequence[JobQuery], taken: Manifest
) -> None:
    """Tag the versions of tables that a savepoint names, and free those of savepoints that were disposed of.

    Only a driver reaches the tables: what is disposed of is freed by the next savepoint. A savepoint does not
    fail because of it.
    """
    for query in queries:
        kind, saved = table_format(query.sink.name), taken.query(query.name)
        if kind is None or saved is None or query.session.setting(KEEP, "false") != "true":
            continue
        try:
            table = query.session.sink_table(kind, query.sink.table, query.sink.path)
            tags = table.tags()
            if tags is None:
                log.warning(
                    "Query %s: %s has no tags; its table goes back to savepoints only as long as versions "
                    "are kept: %s",
                    *(query.name, kind, table.kept_for()),
                )
                continue
            prefix = f"flinkstyle/{board.root.root_id[:8]}/{board.job}/{query.name}/"
            there = {prefix + savepoint_id for savepoint_id in repository.ids()}
            old = {tag for tag in tags if tag.startswith(prefix)} - there
            own, at = prefix + taken.savepoint_id, saved.sink_table
            new = {own: at.version} if at is not None and own not in tags else {}
            if old or new:
                table.set_tags(new, old)
        except Exception as error:  # noqa: BLE001  # Spark's, Java's, and the store's
            log.warning("Query %s: versions of its table were not kept: %s", query.name, error)
