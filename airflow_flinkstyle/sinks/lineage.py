"""What a lineage has written, looked at before the first batch of a run; and its completions.

Spark runs a batch again after a crash, always the newest it had planned. So at the begin of a run a batch is
new, or was written in part, or was written whole and not yet committed by Spark; anything else means that
the checkpoint and the markers do not belong together.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.settings import admin_client
from airflow_flinkstyle.sinks.control_topic import (
    COMPLETIONS,
    marker_partition,
    read_completion,
    read_marker,
    read_markers,
    require_control_topic,
)
from airflow_flinkstyle.sinks.errors import (
    REPLAYS,
    LineageError,
    ProducerFencedError,
    ReplayDiffersError,
    ShardCountError,
)
from airflow_flinkstyle.sinks.marker import Completion, Marker
from airflow_flinkstyle.sinks.producer import (
    initialised_producer,
    open_producer,
    timeout_too_long,
    translated,
)
from airflow_flinkstyle.sinks.shard import WRAP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_flinkstyle.sinks.resume import Resume
    from airflow_flinkstyle.sinks.settings import SinkSettings
    from airflow_flinkstyle.sinks.source_offsets import Consumed

log = logging.getLogger(__name__)
_THREADS = 8
_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What was found when a run began."""

    cluster_id: str
    """The cluster that is written to."""
    completer: Completer
    """Writes what this run completes; no earlier run can any more."""
    completed: Completion
    markers: Mapping[int, Marker]
    """By shard; those of an earlier, larger number of shards included."""

    def written(self, batch_id: int) -> dict[int, Marker]:
        """Return the shards that have written a batch."""
        return {shard: marker for shard, marker in self.markers.items() if marker.batch_id == batch_id}


def open_lineage(
    settings: SinkSettings, *, query_id: str, batch_id: int, resume: Resume | None = None
) -> Opened:
    """End what an earlier run left open, and check that the next batch follows what was written.

    Args:
        settings: The sink.
        query_id: The query's id, from its checkpoint.
        batch_id: The first batch of this run.
        resume: What the query starts from; None takes the lineage as it is.

    Raises:
        TransactionTimeoutError: If the broker does not allow transactions that long.
        ControlTopicError: If the markers of a lineage that should have some are gone.
        LineageError: If another query writes under the lineage, or the batch does not follow.
        ShardCountError: If the number of shards was changed while a batch is half written.
    """
    cluster_id = _require_timeout(settings)
    behind = partial(_begins_behind, resume, cluster_id, batch_id)
    room = require_control_topic(settings, may_create=batch_id == 0 or behind(None) is not None)
    with suppress(ProducerFencedError):  # who is refused here has hurt nobody
        _require_owner(settings, read_completion(settings), query_id)
    completer = Completer(settings)  # before the completion is read: an open one of an earlier run ends
    found = read_completion(settings)
    _fence(settings, range(room))
    markers = read_markers(settings, range(room))
    if (after_batch := behind(found)) is not None:
        _require_owner(settings, found, query_id)
        _require_nothing_half_written(settings, found, markers)
        found = _begun(settings, query_id, after_batch)
        completer.complete(found)
        log.info("Lineage %s begins behind batch %d on %s", settings.lineage, after_batch, settings.cluster)
    opened = Opened(
        cluster_id=cluster_id,
        completer=completer,
        completed=found or _none_yet(settings, query_id, batch_id),
        markers=markers,
    )
    _require_next(settings, opened, query_id=query_id, batch_id=batch_id)
    _claim(settings, range(room), markers)
    return opened


def _begins_behind(
    resume: Resume | None, cluster_id: str, batch_id: int, found: Completion | None
) -> int | None:
    if resume is None:
        return None
    completed = found.batch_id if found else None
    return resume.begins_behind(cluster_id=cluster_id, batch_id=batch_id, completed=completed)


def _begun(settings: SinkSettings, query_id: str, after_batch: int) -> Completion:
    return Completion(batch_id=after_batch, records=0, shards=settings.shards, query_id=query_id)


def _none_yet(settings: SinkSettings, query_id: str, batch_id: int) -> Completion:
    if batch_id > 0:
        raise LineageError(
            f"Lineage {settings.lineage} was expected to have written the batches before {batch_id}, found "
            f"no record of any in {settings.control_topic}.",
            left="Nothing was written.",
            remedy="If this is a new lineage (a fork, another cluster), call begin_lineage with the batch "
            "before it; if not, the control topic was deleted: find out which batch the output ends with "
            "first.",
        )
    return Completion(batch_id=-1, records=0, shards=settings.shards, query_id=query_id)


def _fence(settings: SinkSettings, shards: range) -> None:
    """Abort what is open under every id that the lineage ever used."""

    def end(shard: int) -> None:
        with open_producer(settings, settings.transactional_id(shard)):
            log.debug("Fenced %s", settings.transactional_id(shard))

    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="fence") as pool:
        list(pool.map(end, shards))


def _require_owner(settings: SinkSettings, completed: Completion | None, query_id: str) -> None:
    if completed is not None and completed.query_id != query_id:
        raise LineageError(
            f"Lineage {settings.lineage} was expected to be written by query {query_id}, but query "
            f"{completed.query_id} has written its batches up to {completed.batch_id}.",
            left="Nothing was written.",
            remedy="Give this query a lineage of its own.",
        )


def _require_next(settings: SinkSettings, opened: Opened, *, query_id: str, batch_id: int) -> None:
    """Check that a batch is the next after what the lineage has completed, or the newest again."""
    completed = opened.completed
    _require_owner(settings, completed, query_id)
    newest = max((marker.batch_id for marker in opened.markers.values()), default=-1)
    newest = max(newest, completed.batch_id)
    if not newest <= batch_id <= completed.batch_id + 1:
        raise LineageError(
            f"Lineage {settings.lineage} has completed batch {completed.batch_id} and written batch "
            f"{newest}, so batch {max(newest, completed.batch_id + 1)} was expected next, found {batch_id}.",
            left="Nothing was written; batches that are known would have been left out silently.",
            remedy="If an older savepoint was restored, start with rewind=fork (a new lineage) or re-emit.",
        )
    _require_shards(settings, completed, opened.markers)


def _done(completed: Completion | None) -> int:
    return completed.batch_id if completed else -1


def _half_written(completed: Completion | None, markers: Mapping[int, Marker]) -> dict[int, Marker]:
    """Return the shards that have written a batch which is not complete."""
    return {shard: marker for shard, marker in markers.items() if marker.batch_id > _done(completed)}


def _require_shards(
    settings: SinkSettings, completed: Completion | None, markers: Mapping[int, Marker]
) -> None:
    """Check that what is half written was written with as many shards as the job asks for."""
    beyond = _half_written(completed, markers).values()
    half = next((marker for marker in beyond if marker.shards != settings.shards), None)
    if half is not None:
        raise ShardCountError(
            f"Batch {half.batch_id} is half written with {half.shards} shards, but the job asks for "
            f"{settings.shards}.",
            left="Nothing was written; what is half written stays as it is.",
            remedy=f"Start the job once with shards={half.shards} until a batch has completed, stop "
            "it, then change the number.",
        )


def _require_nothing_half_written(
    settings: SinkSettings, completed: Completion | None, markers: Mapping[int, Marker]
) -> None:
    """Check, on a cluster that a lineage comes back to, that no part of a batch came while it was away."""
    beyond = _half_written(completed, markers)
    if beyond:
        newest = max(marker.batch_id for marker in beyond.values())
        raise LineageError(
            f"Lineage {settings.lineage} was expected to have left {settings.cluster} behind batch "
            f"{_done(completed)}, found that shards {sorted(beyond)} have written up to batch {newest} "
            "there: a driver that was taken for dead has gone on after the sink moved away.",
            left="Nothing was written; those records are in the output a second time.",
            remedy="Remove them from what reads the output, and start with rewind=fork (a new lineage).",
        )


def _claim(settings: SinkSettings, shards: range, seen: Mapping[int, Marker]) -> None:
    """Note the run in every marker, before anything is written.

    A task of an earlier run's driver, which was frozen and wakes, begins anew under its shard's id; that
    shard may not be one of today's. It finds here that the lineage is not its to write any more.

    Args:
        settings: The sink.
        shards: All that the control topic has room for.
        seen: The markers as they were looked at.

    Raises:
        ProducerFencedError: If a shard was written since.
    """

    def claim(shard: int) -> None:
        transactional_id = settings.transactional_id(shard)
        with open_producer(settings, transactional_id) as producer:
            found = read_marker(settings, shard)
            if found != seen.get(shard):
                raise _written_meanwhile(settings, shard)
            before = found or Marker(batch_id=-1, records=0, digest=0, plan="0-", run="")
            noted = replace(before, run=settings.run)
            producer.begin_transaction()
            number = marker_partition(shard)
            producer.produce(settings.control_topic, noted.to_bytes(), transactional_id, partition=number)
            producer.commit_transaction()

    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="claim") as pool:
        list(pool.map(claim, shards))
    log.info("Lineage %s is written by run %s from now on", settings.lineage, settings.run)


def _written_meanwhile(settings: SinkSettings, shard: int) -> ProducerFencedError:
    return ProducerFencedError(
        f"Shard {shard} of lineage {settings.lineage} was expected to rest while a run begins, found "
        "that another one has written it.",
        left=REPLAYS,
        remedy="Nothing is to be done if the job goes on; else look for a second driver of it.",
    )


def require_same_batch(batch_id: int, was: Mapping[int, Marker], now: Iterable[tuple[int, int]]) -> int:
    """Check that a complete batch, run again by however many shards, would be what was written. Pure.

    Args:
        batch_id: The batch.
        was: The markers of the shards that have written it.
        now: Records and digest of each shard as it would be written.

    Returns:
        The number of its records.

    Raises:
        ReplayDiffersError: If it has other records.
    """
    total = _total((marker.records, marker.digest) for marker in was.values())
    if _total(now) != total:
        raise ReplayDiffersError.of(batch_id, was)
    return total[0]


def _total(parts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    listed = list(parts)
    return sum(records for records, _ in listed), sum(digest for _, digest in listed) % WRAP


class Completer:
    """Writes that all shards of a batch have committed; the driver keeps it open for a run."""

    def __init__(self, settings: SinkSettings) -> None:
        """Open the producer of the lineage's completions, which ends that of every earlier run."""
        self._settings = settings
        self._producer = initialised_producer(settings, settings.completion_id)

    def complete(self, completion: Completion, consumed: Consumed | None = None) -> None:
        """Write that a batch is complete, and with it how far its sources were read.

        Raises:
            ProducerFencedError: If another driver has begun to write under the lineage.
        """
        from confluent_kafka import TopicPartition

        with translated(self._settings, self._settings.completion_id):
            self._producer.begin_transaction()
            self._producer.produce(
                self._settings.control_topic,
                completion.to_bytes(),
                self._settings.completion_id,
                partition=COMPLETIONS,
            )
            if consumed is not None:
                positions = [
                    TopicPartition(topic, number, at) for (topic, number), at in consumed.offsets.items()
                ]
                self._producer.send_offsets_to_transaction(positions, consumed.group, _TIMEOUT_S)
            self._producer.commit_transaction()


def begin_lineage(settings: SinkSettings, *, query_id: str, after_batch: int) -> None:
    """Let a new lineage begin behind a batch: for a fork, a sink on another cluster, a lost control topic.

    Args:
        settings: The sink; its lineage must not have written anything.
        query_id: The query's id, from its checkpoint.
        after_batch: The last batch whose records the output is to be taken to hold.

    Raises:
        LineageError: If the lineage has written batches.
    """
    require_control_topic(settings, may_create=True)
    completer = Completer(settings)
    found = read_completion(settings)
    wanted = _begun(settings, query_id, after_batch)
    if found is not None and found != wanted:
        raise LineageError(
            f"Lineage {settings.lineage} was expected to be new, but has completed batch {found.batch_id}.",
            left="Nothing was written.",
            remedy="Choose another lineage.",
        )
    completer.complete(wanted)


def _require_timeout(settings: SinkSettings) -> str:
    """Check that the broker allows transactions that long; returns the cluster's id."""
    from confluent_kafka.admin import ConfigResource

    with admin_client(settings.cluster) as admin:
        found = admin.list_topics(timeout=_TIMEOUT_S)
        broker = next(iter(found.brokers))
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        config = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)
    limit = config.get("transaction.max.timeout.ms")
    if limit is not None and settings.transaction_timeout_ms > int(limit.value):
        raise timeout_too_long(settings, int(limit.value))
    return str(found.cluster_id)
