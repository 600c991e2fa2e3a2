"""Lets the consumer groups of a job's Kafka sources follow its completed batches, so that lag can be watched.

A batch is complete once its commit log is there: a thread beside the queries' own polls for it. Nothing ever
reads back what is committed here.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.commits.group_committer import BatchOffsets, GroupCommitter
from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.checkpoint.errors import CheckpointError
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.sinks import resume
from airflow_flinkstyle.storage.errors import ObjectMissingError
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.queries.registry import Queries
    from airflow_flinkstyle.agent.core.spark import Spark, StreamingSource
    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.protocol.query_records import CommittedGroup, QueryStatus

ON = "spark.flinkstyle.commitOffsets"
GROUP = "spark.flinkstyle.commitOffsets.groupId"
GROUP_OPTION = "kafka.group.id"
POLL_S = 1.0
STOP_S = 5.0
"""How long the end of a run waits for commits on their way."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSetting:
    """Whether offsets are committed, and to which groups."""

    on: bool = False
    group: str | None = None
    """For sources that have no ``kafka.group.id``; None leaves those out."""

    @staticmethod
    def of(spark: Spark) -> CommitSetting:
        """Read the job's Spark settings.

        Raises:
            BadInputError: If it is neither on nor off.
        """
        given = spark.setting(ON, "false")
        if given.lower() not in ("true", "false"):
            raise BadInputError(
                f"{ON} was expected to be true or false, found {given!r}.",
                state_after="No query was started.",
                remedy=f"Correct it; {GROUP} names a group.",
            )
        return CommitSetting(on=given.lower() == "true", group=spark.setting(GROUP) or None)

    def group_of(self, source: StreamingSource) -> str | None:
        """Return the group of a Kafka source; None if it has none."""
        return source.option(GROUP_OPTION) or self.group


class BatchWatch(threading.Thread):
    """Polls for completed batches, and passes them to the committers of their sources."""

    def __init__(self, queries: Queries) -> None:
        super().__init__(name="flinkstyle-commits", daemon=True)
        self._queries = queries
        self._setting = CommitSetting()
        self._seen: dict[str, BatchId] = {}
        self._committers: dict[tuple[str, str], GroupCommitter] = {}
        """By query and source."""
        self._readers: dict[tuple[str, str, str], tuple[str, str]] = {}
        """Servers, group and topic -> the only query and source that may commit there."""
        self._not_committed: set[tuple[str, str]] = set()
        self._ending, self._done = threading.Event(), threading.Event()

    def begin(self, setting: CommitSetting) -> None:
        """Start watching, if offsets are to be committed at all."""
        self._setting = setting
        if setting.on:
            self.start()

    def run(self) -> None:
        """Poll until the run ends, and once more after it."""
        while not self._done.is_set():
            last = self._ending.is_set()
            try:
                self.check()
            except Exception:  # the job does not need any of this
                log.warning("Completed batches could not be read", exc_info=True)
            if last:
                self._done.set()
            self._ending.wait(POLL_S)

    def check(self) -> None:
        """Pass every new batch to the committers."""
        for query in self._queries.all():
            batch = self._newest(query)
            if batch >= 0 and batch != self._seen.get(query.name):
                self._complete(query, batch)
                self._seen[query.name] = batch

    def finish(self) -> None:
        """Check for the last batches, now that all queries have stopped; wait a short time for commits."""
        if not self._setting.on:
            return
        self._ending.set()
        until_s = time.monotonic() + STOP_S
        done = self._done.wait(STOP_S)
        late = []
        for committer in list(self._committers.values()):
            if not committer.wait_idle(max(0.0, until_s - time.monotonic())):
                late.append(str(committer.group))
            committer.end()
        if late or not done:
            log.warning(
                "The offsets of the last batch were not committed within %g s (%s): the lag of the group is "
                "too high until the job runs again.", STOP_S, ", ".join(late) or "no batch found",
            )  # fmt: skip

    def with_groups(self, statuses: dict[str, QueryStatus]) -> dict[str, QueryStatus]:
        """Add to the queries' status what was committed for their groups."""
        groups: dict[str, dict[str, CommittedGroup]] = {}
        for (query, source), committer in list(self._committers.items()):
            groups.setdefault(query, {})[source] = committer.status()
        return {name: replace(status, groups=groups.get(name, {})) for name, status in statuses.items()}

    def _newest(self, query: JobQuery) -> BatchId:
        """Return the newest batch by asking for the next ones: listing all is slow in an object store."""
        known = -1 if query.committed is None else query.committed
        batch = max(known, self._seen.get(query.name, -1))
        while query.checkpoint.head(f"commits/{batch + 1}") is not None:
            batch += 1
        return BatchId(batch)

    def _complete(self, query: JobQuery, batch: BatchId) -> None:
        try:
            offsets = offset_log.parse(query.checkpoint.read(f"offsets/{batch}").decode())
        except (ObjectMissingError, CheckpointError) as error:
            log.warning(
                "Query %s: batch %d has completed, but its offsets are unknown: %s", query.name, batch, error
            )
            return
        for source in query.sources:
            if source.is_kafka:
                self._complete_source(query, source, batch, offsets)

    def _complete_source(
        self, query: JobQuery, source: StreamingSource, batch: BatchId, planned: OffsetLog
    ) -> None:
        where = (query.name, source.key(planned.version))
        try:
            offsets = planned.kafka_offsets(where[1])
        except BadInputError as error:
            log.warning("Query %s: batch %d has no offsets of a source: %s", query.name, batch, error)
            return
        group = self._setting.group_of(source)
        why = self._why_not(query, source, group, where, sorted(offsets.topics))
        if offsets and group is not None and why is None:
            self._committer(where, source, group).complete(BatchOffsets(batch_id=batch, offsets=offsets))
        elif why is not None and where not in self._not_committed:
            self._not_committed.add(where)
            log.warning("Query %s, source %s: its offsets are not committed: %s", *where, why)

    def _why_not(
        self,
        query: JobQuery,
        source: StreamingSource,
        group: str | None,
        where: tuple[str, str],
        topics: Iterable[str],
    ) -> str | None:
        """Return why the offsets of a source are not ours to commit; None if they are."""
        if group is None:
            return f"it has no group. Set {GROUP_OPTION} on it, or {GROUP}."
        if any(state.commits_group == group for state in resume.states(query.started.id)):
            return f"the query's sink commits group {group} with each batch."
        servers = source.option("kafka.bootstrap.servers") or ""
        for topic in topics:
            other = self._readers.setdefault((servers, group, topic), where)
            if other != where:
                return f"source {other[1]} of query {other[0]} reads {topic} for group {group} too."
        return None

    def _committer(self, where: tuple[str, str], source: StreamingSource, group: str) -> GroupCommitter:
        if where not in self._committers:
            label = f"Query {where[0]}, source {where[1]}"
            self._committers[where] = GroupCommitter(self._queries.spark.group(source, group), label)
            self._committers[where].start()
            log.info("%s: its offsets are committed to group %s", label, group)
        return self._committers[where]
