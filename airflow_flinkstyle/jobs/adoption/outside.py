"""A checkpoint that plain Spark wrote, read from outside: what it is, and whether it stands still."""

from __future__ import annotations

import hashlib
import itertools
import logging
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import commit_log, metadata, offset_log
from airflow_flinkstyle.checkpoint.errors import LogFormatError
from airflow_flinkstyle.checkpoint.inventory import read_inventory
from airflow_flinkstyle.checkpoint.state_store import refuse_unsupported
from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.errors import SOURCE_CLUSTER, CheckpointWrittenError
from airflow_flinkstyle.kafka.cluster import describe, existing_topics
from airflow_flinkstyle.kafka.positions import require_within_log
from airflow_flinkstyle.protocol.board import check_name
from airflow_flinkstyle.protocol.home import OutsideCheckpoint
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.storage.errors import ObjectMissingError, StoreDeniedError
from airflow_flinkstyle.storage.open import is_of_hadoop
from airflow_flinkstyle.types import id_words

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Protocol

    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import BatchId

    class NamedClusters(Protocol):
        """The clusters that a person named."""

        def with_topics(self, topics: Collection[str]) -> Sequence[ClusterView]:
            """Return those that have all of these topics, as they are now."""

        def __str__(self) -> str:
            """Name them."""


log = logging.getLogger(__name__)

UNTOUCHED = "Nothing was adopted; the checkpoint was only read."
UNKNOWN_SPARK = "unknown"
"""Any Spark writes such files."""
_INTERVALS = 3
"""A checkpoint that is written shows that within so many of its own intervals between two batches."""
_LEAST_S, _MOST_S = 5.0, 120.0
_ATTEMPTS = 3
_BATCHES = 4
"""From how many of the newest batches the interval is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """One query of plain Spark, as its checkpoint shows it when it is read once."""

    name: str
    """What the query is to be called here: the ``queryName`` of the script."""
    location: str
    """As the caller wrote it."""
    checkpoint: ObjectStore
    query_id: str
    batch_id: BatchId
    """The newest committed batch."""
    committed: OffsetLog
    """Of that batch."""
    planned: OffsetLog | None
    """Of the batch behind it, if it was planned: Spark runs it again, with the same offsets."""
    spark_version: str
    """The oldest Spark that writes such files, or ``UNKNOWN_SPARK``: no file says which one wrote it."""
    interval_s: float
    """Between two of the newest batches, by Spark's own clock; 0 if there was only one."""
    mark: str
    """Changes with whatever is written to the logs or the state; the same in every process."""

    @property
    def newest(self) -> OffsetLog:
        """The log whose offsets must lie in the live cluster's logs."""
        return self.planned or self.committed

    @property
    def begun_at_ms(self) -> int:
        """When the newest batch was planned, by the driver's clock."""
        return self.newest.timestamp_ms

    def as_record(self) -> OutsideCheckpoint:
        """Return what is recorded of it."""
        return OutsideCheckpoint(
            location=self.location,
            query_id=self.query_id,
            batch_id=self.batch_id,
            planned=self.planned is not None,
        )


def inspect_query(name: str, location: str, open_checkpoint: Callable[[str], ObjectStore]) -> Outside:
    """Read one query's checkpoint; writes nothing.

    Raises:
        BadInputError: If it is no valid name, or no query's checkpoint is there.
        StoreDeniedError: If it may not be read.
        CheckpointError: If it is of an unsupported kind, contradicts itself, or has committed nothing yet.
    """
    check_name("query name", name)
    checkpoint = _opened(name, location, open_checkpoint)
    try:
        return _read_again_if_purged(name, location, checkpoint)
    except StoreDeniedError as error:
        raise StoreDeniedError(
            f"The checkpoint of query {name} in {location} was expected to be readable from here, found that "
            f"it is not: {error.problem}",
            state_after=UNTOUCHED,
            remedy="Let this process's user or keys read below it (list and read; nothing is written), or "
            "copy it to where they can and adopt the copy.",
        ) from error
    except ObjectMissingError as error:
        raise _not_found(name, location, checkpoint) from error


def _opened(name: str, location: str, open_checkpoint: Callable[[str], ObjectStore]) -> ObjectStore:
    try:
        return open_checkpoint(location)
    except BadInputError as error:
        if not is_of_hadoop(location):
            raise
        raise BadInputError(
            f"The checkpoint of query {name} was expected in a local folder or on S3, found {location}: only "
            "Spark's own client opens that.",
            state_after=UNTOUCHED,
            remedy=f"Stop the job, copy its checkpoint (hadoop fs -get {shlex.quote(location)} FOLDER, or "
            "hadoop distcp to S3) and adopt the copy. The job can run on that file system afterwards: its "
            "checkpoint root says where.",
        ) from error


def _read_again_if_purged(name: str, location: str, checkpoint: ObjectStore) -> Outside:
    """Read again if a file is gone since it was listed: a query that runs deletes old ones."""
    for attempt in range(1, _ATTEMPTS + 1):
        query_id = metadata.parse(_text(checkpoint.read("metadata"))).query_id
        try:
            return _read_once(name, location, checkpoint, query_id)
        except ObjectMissingError:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _read_once(name: str, location: str, checkpoint: ObjectStore, query_id: str) -> Outside:
    mark = _mark(checkpoint)  # before the logs: what is written between the two changes the next mark
    inventory = read_inventory(checkpoint)
    committed = _offsets(checkpoint, inventory.committed)
    planned = _offsets(checkpoint, inventory.planned) if inventory.planned is not None else None
    refuse_unsupported(committed.confs)
    commit = commit_log.parse(_text(checkpoint.read(f"commits/{inventory.committed}")))
    return Outside(
        name=name,
        location=location,
        checkpoint=checkpoint,
        query_id=query_id,
        batch_id=inventory.committed,
        committed=committed,
        planned=planned,
        spark_version=_at_least(committed.version, commit.version),
        interval_s=_interval_s(checkpoint, inventory.committed),
        mark=mark,
    )


def inspect_queries(
    named: Mapping[str, str], open_checkpoint: Callable[[str], ObjectStore]
) -> tuple[Outside, ...]:
    """Read the checkpoints of a job, by query name; raises as ``inspect_query`` does.

    Raises:
        BadInputError: If none is named, or two have one location.
    """
    if not named:
        raise BadInputError(
            "Expected the checkpoint location of each query of the job, found none.",
            state_after=UNTOUCHED,
            remedy="Name each query as its script does, with its location: totals=s3a://bucket/checkpoint.",
        )
    found = tuple(inspect_query(name, location, open_checkpoint) for name, location in sorted(named.items()))
    places: dict[str, str] = {}
    for one in found:
        other = places.setdefault(one.checkpoint.uri.rstrip("/"), one.name)
        if other == one.name:  # a link, or another spelling, leads to the same query
            other = places.setdefault(f"query id {one.query_id}", one.name)
        if other != one.name:
            raise BadInputError(
                f"Expected a checkpoint location of its own for each query, found that {other} and {one.name}"
                f" have one: {one.location} (query id {one.query_id}).",
                state_after=UNTOUCHED,
                remedy="Give each query the location that its own writeStream names.",
            )
    return found


def await_still(
    seen: Sequence[Outside],
    open_checkpoint: Callable[[str], ObjectStore],
    *,
    still_s: float | None,
    clock: Clock,
) -> tuple[Outside, ...]:
    """Wait until checkpoints have not changed for a while, and return what is there.

    A running query without new records writes nothing either: stillness shows that no batch was written
    meanwhile, not that no process is left.

    Args:
        seen: As they were first read.
        open_checkpoint: Opens a location.
        still_s: For how long they must not change; None for three of their own intervals, 5 s to 120 s.
        clock: By which to wait.

    Raises:
        CheckpointWrittenError: If one changed.
    """
    needed_s = still_s if still_s is not None else still_for(seen)
    log.info("Watching for %.0f s whether the checkpoints stand still", needed_s)
    wait = clock.wait(needed_s, every_s=max(0.05, min(1.0, needed_s / 4)))
    while True:
        now = inspect_queries({one.name: one.location for one in seen}, open_checkpoint)
        require_same(seen, now, within_s=needed_s)
        if not wait.again():
            return now


def still_for(seen: Sequence[Outside]) -> float:
    """Return for how many seconds checkpoints must stand still, by their own pace."""
    return min(_MOST_S, max(_LEAST_S, *(_INTERVALS * one.interval_s for one in seen)))


def require_same(before: Sequence[Outside], now: Sequence[Outside], *, within_s: float) -> None:
    """Require that nothing was written between two reads; raises ``CheckpointWrittenError``."""
    for one, again in zip(before, now, strict=True):
        if one.mark == again.mark and one.query_id == again.query_id:
            continue
        progress = f"batch {one.batch_id}, then batch {again.batch_id}"
        progress = progress if one.batch_id != again.batch_id else "a batch under way"
        raise CheckpointWrittenError(
            f"The checkpoint of query {one.name} in {one.location} was expected to stand still for "
            f"{within_s:.0f} s, found that it was written meanwhile: {progress}.",
            state_after=UNTOUCHED,
            remedy="Stop the job that writes there and adopt it then; or adopt it while it runs "
            "(flinkstyle job adopt-running).",
        )


def _not_found(name: str, location: str, checkpoint: ObjectStore) -> BadInputError:
    folders = [folder for folder in checkpoint.folders() if checkpoint.head(f"{folder}/metadata") is not None]
    hint = (
        f" Below it are the checkpoints {', '.join(sorted(folders)[:5])}: name each of them."
        if folders
        else ""
    )
    return BadInputError(
        f"Expected the checkpoint of query {name} in {location}, found no whole one: the file metadata, or a "
        "log that it names, is missing.",
        state_after=UNTOUCHED,
        remedy=f"Give the checkpointLocation of that query, as its script names it.{hint}",
    )


def _mark(checkpoint: ObjectStore) -> str:
    """Return what changes with each write; the logs' and the state's files, by name and version."""
    found = [
        f"{info.key} {info.version}"
        for part in ("offsets/", "commits/", "state/")
        for info in checkpoint.list(part)
    ]
    return hashlib.sha256("\n".join(found).encode(errors="surrogatepass")).hexdigest()


def _offsets(checkpoint: ObjectStore, batch: int) -> OffsetLog:
    return offset_log.parse(_text(checkpoint.read(f"offsets/{batch}")))


def _interval_s(checkpoint: ObjectStore, newest: int) -> float:
    """Return the longest time between two of the newest batches; old logs may have been purged."""
    times = []
    for batch in range(newest, max(-1, newest - _BATCHES), -1):
        try:
            times.append(_offsets(checkpoint, batch).timestamp_ms)
        except (ObjectMissingError, LogFormatError):
            break
    gaps = [later - earlier for later, earlier in itertools.pairwise(times)]
    return max(0, *gaps, 0) / 1000


def _at_least(offsets_version: int, commit_version: int) -> str:
    if offsets_version > 1 or commit_version > 2:  # the versions that 4.2 brought
        return "4.2"
    return "4.0" if commit_version == 2 else UNKNOWN_SPARK


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise LogFormatError.of("A log file", "UTF-8 text", content[:40].hex()) from error


# In which Kafka cluster a checkpoint's positions count: a person names the clusters, they are asked the rest.
#
# A checkpoint of plain Spark records neither a cluster's id nor a topic's. So the person who names a
# cluster vouches for it; what can be checked is that its topics have these partitions, and that each
# position lies in its log. A topic that was deleted and created again, with a log that is long enough by
# now, passes.


class LiveClusters:
    """Kafka clusters, asked when they are needed."""

    def __init__(self, clusters: Sequence[KafkaCluster]) -> None:
        self._clusters = tuple(clusters)
        self._topics: dict[int, frozenset[str]] = {}

    def with_topics(self, topics: Collection[str]) -> list[ClusterView]:
        """Return the clusters that have all of these topics, each once, as they are now."""
        found: dict[str, ClusterView] = {}  # one without an id counts as a cluster of its own
        for number, cluster in enumerate(self._clusters):
            if number not in self._topics:
                self._topics[number] = existing_topics(cluster)
            if self._topics[number].issuperset(topics):
                view = describe(cluster, topics)
                found.setdefault(view.cluster_id or f"at {cluster.bootstrap_servers}", view)
        return list(found.values())

    def __str__(self) -> str:
        """Name them for messages."""
        return ", ".join(map(str, self._clusters)) or "no cluster"


def find_logs(queries: Sequence[Outside], clusters: NamedClusters) -> dict[str, dict[str, KafkaLog]]:
    """Return the log of each Kafka source by query and source, after a check that its positions lie in it.

    Raises:
        JobError: ``SOURCE_CLUSTER`` if no cluster, or more than one, has a source's topics with its
            positions.
        FlinkstyleError: If the only cluster that has them lacks a partition or a position.
    """
    return {
        query.name: {source: _log_of(query, source, clusters) for source in query.newest.kafka_sources}
        for query in queries
    }


def unread(queries: Sequence[Outside], logs: Mapping[str, Mapping[str, KafkaLog]]) -> int:
    """Return how many offsets no query has read yet: what a running query would read."""
    return sum(
        max(0, ends[partition][1] - offset)
        for query in queries
        for source, known in logs[query.name].items()
        for (topic, partition), offset in query.newest.kafka_offsets(source).items()
        if (ends := known.log_range.get(topic, {})) and partition in ends
    )


def _log_of(query: Outside, source: str, clusters: NamedClusters) -> KafkaLog:
    topics = query.newest.kafka_offsets(source).topics
    where = f"source {source} of query {query.name}"
    views = clusters.with_topics(topics)
    fitting, refusals = [], []
    for view in views:
        try:
            _require_inside(query, source, view, where)
        except FlinkstyleError as error:
            refusals.append(error)
        else:
            fitting.append(view)
    if len(fitting) == 1:
        return _as_log(fitting[0])
    if len(views) == 1:
        raise type(refusals[0])(refusals[0].problem, UNTOUCHED, refusals[0].remedy)
    names = ", ".join(sorted(topics))
    if not views:
        found = f"none among {clusters}"
    elif fitting:
        found = "more than one: " + ", ".join(id_words(view.cluster_id) for view in fitting)
    else:
        found = "; ".join(error.problem for error in refusals)
    raise SOURCE_CLUSTER.with_text(
        f"One Kafka cluster with the topics {names} was expected for {where}, found {found}.",
        state_after=UNTOUCHED,
        remedy="Name the cluster that the script reads (--kafka-config or --kafka-conn-id), and no other one "
        "with the same topics: no file of a checkpoint says which one it was.",
    )


def _require_inside(query: Outside, source: str, view: ClusterView, where: str) -> None:
    """Check what the start guard will check: the newest positions, and those of the planned batch."""
    newest = query.newest.kafka_offsets(source)
    require_within_log(newest, view, where)
    if query.planned is not None and source in query.committed.sources:
        require_within_log(newest | query.committed.kafka_offsets(source), view, where)


def _as_log(view: ClusterView) -> KafkaLog:
    return KafkaLog(
        cluster_id=view.cluster_id,
        topic_ids={topic: seen.topic_id for topic, seen in view.topics.items()},
        log_range={
            topic: {number: (log.start, log.end) for number, log in seen.partitions.items()}
            for topic, seen in view.topics.items()
        },
    )
