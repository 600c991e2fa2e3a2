"""What a lineage has written, read before the first batch of a run; and its completions."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.settings import admin_client
from airflow_flinkstyle.sinks.control_reading import read_completion, read_newest_completion, read_shard
from airflow_flinkstyle.sinks.control_topic import (
    COMPLETIONS,
    require_control_topic,
)
from airflow_flinkstyle.sinks.decisions import (
    begins_behind,
    begun,
    none_yet,
    require_next,
    require_nothing_half_written,
    require_owner,
)
from airflow_flinkstyle.sinks.errors import REPLAYS, SINK_LINEAGE, ProducerFencedError
from airflow_flinkstyle.sinks.left_open import abort_left_open, output_ends, readable_since
from airflow_flinkstyle.sinks.marker import NOTHING_YET, Completion, Marker
from airflow_flinkstyle.sinks.producer import (
    each_shard,
    initialised_producer,
    open_producer,
    send_marker,
    timeout_too_long,
    translated,
)
from airflow_flinkstyle.sinks.settings import SMALL_BATCH_SHARD
from airflow_flinkstyle.types import known_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Producer

    from airflow_flinkstyle.sinks.control_reading import ShardFound
    from airflow_flinkstyle.sinks.readable_records import ReadableRecords
    from airflow_flinkstyle.sinks.resume import Resume
    from airflow_flinkstyle.sinks.settings import SinkSettings
    from airflow_flinkstyle.sinks.source_offsets import Consumed

log = logging.getLogger(__name__)
_TIMEOUT_S = 20.0
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What was found when a run began."""

    cluster_id: str
    """The cluster that is written to."""
    completer: Completer
    """Writes this run's completions; the producers of earlier runs are fenced."""
    completed: Completion
    markers: Mapping[int, Marker]
    """By shard; those of an earlier, larger number of shards included."""
    readable: ReadableRecords | None
    """Records of the next batch that the output may hold, because brokers had left transactions open."""

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
        FlinkstyleError: ``TRANSACTION_TIMEOUT`` if the broker does not allow transactions that long.
        FlinkstyleError: ``CONTROL_TOPIC`` if the markers of a lineage that should have some are gone.
        FlinkstyleError: ``SINK_LINEAGE`` if another query writes under the lineage, or the batch does not
            follow.
        FlinkstyleError: ``SHARD_COUNT`` if the number of shards was changed while a batch is half written.
        FlinkstyleError: ``OUTPUT_UNKNOWN`` if brokers have left open what cannot be mended.
    """
    cluster_id = _require_timeout(settings)
    behind = partial(begins_behind, resume, cluster_id, batch_id)
    room = require_control_topic(settings, may_create=batch_id == 0 or behind(None) is not None)
    with suppress(ProducerFencedError):  # first: a run that is refused here has fenced no other one
        require_owner(settings, read_completion(settings), query_id)
    completer = Completer(settings)  # before the completion is read: an open one of an earlier run ends
    tries_left = _TRIES
    while True:
        opened = _recover(
            settings, completer, cluster_id, range(room), query_id=query_id, batch_id=batch_id, behind=behind
        )
        try:
            _claim(settings, range(room), opened.markers)
        except ProducerFencedError as error:  # a task of a driver that has died outlives it for a while
            tries_left -= 1
            if not tries_left:
                raise
            log.warning("A late task wrote while lineage %s was opened: %s", settings.lineage, error)
            completer.complete(opened.completed)  # raises if another driver has begun meanwhile
        else:
            return opened


def _recover(
    settings: SinkSettings,
    completer: Completer,
    cluster_id: str,
    room: range,
    *,
    query_id: str,
    batch_id: int,
    behind: Callable[[Completion | None], int | None],
) -> Opened:
    """End what earlier runs left open, and return what they have written, once the batch follows it."""
    found, left_open = read_newest_completion(settings)
    if found is not None and left_open:
        completer.complete(found)
    shards = _end_open(settings, room)
    markers = {shard: one.marker for shard, one in shards.items() if one.marker is not None}
    if (after_batch := behind(found)) is not None:
        require_owner(settings, found, query_id)
        require_nothing_half_written(settings, found, markers)
        found = replace(begun(settings, query_id, after_batch), ends=output_ends(settings))
        completer.complete(found)
        log.info("Lineage %s begins behind batch %d on %s", settings.lineage, after_batch, settings.cluster)
    completed = found or replace(none_yet(settings, query_id, batch_id), ends=output_ends(settings))
    require_next(settings, completed, markers, query_id=query_id, batch_id=batch_id)
    readable = None
    if completed.unsure or any(one.left_open for one in shards.values()):
        completed = replace(completed, unsure=True)
        completer.complete(completed)
        abort_left_open(settings, room)
        readable = readable_since(settings, completed.ends)
    elif found is None:  # records where the output ended before the first batch
        completer.complete(completed)
    return Opened(
        cluster_id=cluster_id, completer=completer, completed=completed, markers=markers, readable=readable
    )


def _end_open(settings: SinkSettings, shards: range) -> dict[int, ShardFound]:
    """Abort what is open under every id that the lineage ever used, and read what each has written.

    First under the id of small batches, which have records in every shard's partition: one that was cut off
    would seem to be left open by a broker.
    """
    with open_producer(settings, settings.transactional_id(SMALL_BATCH_SHARD)):
        return each_shard(settings, shards, lambda shard, _: read_shard(settings, shard))


def _claim(settings: SinkSettings, shards: range, markers: Mapping[int, Marker]) -> None:
    """Note the run in every marker, before anything is written.

    A task of an earlier run's driver that was frozen and wakes initialises its shard's id again, perhaps of a
    shard that this run does not have. In the marker it finds that a later run has the lineage.

    Args:
        settings: The sink.
        shards: All that the control topic has room for.
        markers: As they were read.

    Raises:
        ProducerFencedError: If a shard was written since.
    """

    def claim(shard: int, producer: Producer) -> None:
        found = read_shard(settings, shard)
        if found.marker != markers.get(shard) or found.left_open:
            raise _written_meanwhile(settings, shard)
        producer.begin_transaction()
        send_marker(settings, producer, shard, replace(found.marker or NOTHING_YET, run=settings.run))
        producer.commit_transaction()

    each_shard(settings, shards, claim)
    log.info("Lineage %s is written by run %s from now on", settings.lineage, settings.run)


def _written_meanwhile(settings: SinkSettings, shard: int) -> ProducerFencedError:
    return ProducerFencedError(
        f"Shard {shard} of lineage {settings.lineage} was written by another run while this one began.",
        state_after=REPLAYS,
        remedy="Nothing, if the job continues; otherwise look for a second driver of it.",
    )


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

        with translated(self._settings, self._settings.completion_id, self._producer):
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
        FlinkstyleError: ``SINK_LINEAGE`` if the lineage has written batches.
    """
    require_control_topic(settings, may_create=True)
    completer = Completer(settings)
    found = read_completion(settings)
    wanted = replace(begun(settings, query_id, after_batch), ends=output_ends(settings))
    if found is not None and found.batch_id >= 0 and replace(found, ends=wanted.ends) != wanted:
        raise SINK_LINEAGE.with_text(
            f"Lineage {settings.lineage} was expected to be new, but has completed batch {found.batch_id}.",
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
    cluster_id = known_id(found.cluster_id)
    if cluster_id is None:
        raise SINK_LINEAGE.with_text(
            f"The cluster of lineage {settings.lineage} was expected to have an id, found none: "
            "nothing would show that the lineage has moved.",
            remedy="Write to a cluster that has one, or with Spark's own Kafka sink, which is at least once.",
        )
    return cluster_id
