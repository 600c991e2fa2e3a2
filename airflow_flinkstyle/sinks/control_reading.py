"""Reading the control topic: what shards have written, and what brokers have left open there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.settings import SETTLING, consumer
from airflow_flinkstyle.sinks.control_topic import COMPLETIONS, UNKNOWN, marker_partition, missing
from airflow_flinkstyle.sinks.errors import CONTROL_TOPIC, REPLAYS, ProducerFencedError
from airflow_flinkstyle.sinks.marker import Completion, Marker

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from confluent_kafka import Consumer

    from airflow_flinkstyle.kafka.reading import KafkaMessage
    from airflow_flinkstyle.kafka.settings import Isolation
    from airflow_flinkstyle.sinks.settings import SinkSettings

R = TypeVar("R", Completion, Marker)
_NEWEST = 64
"""Offsets read at first: each batch adds two records and a transaction marker."""
_FETCH_WAIT_MS = 1
"""How long a broker waits for more records before it reports a partition's end."""
_TIMEOUT_S = 20.0
_POLL_S = 0.2
_READABLE_S = 10.0
_SETTLED_S = 3.0
"""How long brokers may take to agree on a topic that was just created, or on who leads its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFound:
    """What the partition of a shard's markers holds, once the shard's producer is initialised."""

    marker: Marker | None
    """The newest batch that the shard has written; None if it has written nothing."""
    left_open: bool
    """Behind it is a transaction that no coordinator will end, see ``left_open``."""


def read_completion(settings: SinkSettings) -> Completion | None:
    """Return the newest completed batch that readers get; None if the lineage has written nothing."""
    found = _newest(settings, [COMPLETIONS])[COMPLETIONS]
    return _parsed(Completion, found, settings.completion_id)


def read_newest_completion(settings: SinkSettings) -> tuple[Completion | None, bool]:
    """Return the newest completed batch, and whether brokers have left that completion open.

    Call it with the completions' producer initialised. The batch was complete before the record was sent,
    whatever became of the record.
    """
    found = _newest(settings, [COMPLETIONS])[COMPLETIONS]
    left_open = found.is_open
    if left_open:
        found = _newest(settings, [COMPLETIONS], "read_uncommitted")[COMPLETIONS]
    return _parsed(Completion, found, settings.completion_id), left_open


def read_shard(settings: SinkSettings, shard: int) -> ShardFound:
    """Return what a shard has written; call it with the shard's producer initialised."""
    return read_shards(settings, [shard])[shard]


def read_shards(settings: SinkSettings, shards: Iterable[int]) -> dict[int, ShardFound]:
    """Return what each of some shards has written; call it with the producer initialised that wrote last."""
    places = {marker_partition(shard): shard for shard in shards}
    found = {places[number]: one for number, one in _newest(settings, places).items()}
    return {
        shard: ShardFound(
            marker=_parsed(Marker, one, settings.transactional_id(shard)), left_open=one.is_open
        )
        for shard, one in found.items()
    }


def read_markers(settings: SinkSettings, shards: Iterable[int]) -> dict[int, Marker]:
    """Return the newest marker per shard; shards that have written nothing are left out."""
    found = read_shards(settings, shards)
    return {shard: one.marker for shard, one in found.items() if one.marker is not None}


def unreadable(settings: SinkSettings, shards: Collection[int], batch_id: int) -> list[int]:
    """Return the shards whose markers of a batch no reader gets though their transactions are committed.

    Brokers end a committed transaction in its partitions a moment after they have answered that it is
    committed, or once others have taken over; so the markers are read again for a while.
    """
    pending, wait = list(shards), CLOCK.wait(_READABLE_S, every_s=0.01)
    while pending:
        try:
            markers = read_markers(settings, pending)
        except FlinkstyleError as error:
            if not error.retryable or not wait.again():
                raise
            continue
        pending = [shard for shard in pending if shard not in markers or markers[shard].batch_id != batch_id]
        if pending and not wait.again():
            break
    return pending


def _parsed(kind: type[R], found: _Read, key: str) -> R | None:
    data = found.values.get(key)
    return kind.from_bytes(data) if data is not None else None


@dataclass(slots=True, kw_only=True)
class _Read:
    """What was read of a partition."""

    low: int
    """The oldest offset."""
    high: int
    """The offset up to which readers get, or an older one."""
    values: dict[str, bytes] = field(default_factory=dict)
    """The newest by key."""
    is_open: bool = False
    """There are records behind it that readers do not get yet."""

    @property
    def newest(self) -> int:
        """Where to begin to read."""
        return max(self.low, self.high - _NEWEST)


def _newest(
    settings: SinkSettings, partitions: Iterable[int], isolation: Isolation = "read_committed"
) -> dict[int, _Read]:
    """Return the newest values of the given partitions."""
    from confluent_kafka import OFFSET_BEGINNING

    found: dict[int, _Read] = {}
    with consumer(settings.cluster, isolation, fetch_wait_ms=_FETCH_WAIT_MS) as client:
        for number in partitions:
            low, high = _watermarks(client, settings, number)
            found[number] = _Read(low=low, high=high)
        _read(client, settings, {number: one.newest for number, one in found.items()}, found)
        # From the log's begin where nothing was found. Not from ``low``: librdkafka 2.16 gives the end for it
        # after brokers had it asked again; then another run would seem to have the shard.
        unread = {number: OFFSET_BEGINNING for number, one in found.items() if not one.values and one.high}
        _read(client, settings, unread, found)
    for number, one in found.items():
        _require_alone(settings, number, one.values)
    return found


def _require_alone(settings: SinkSettings, number: int, keys: Iterable[str]) -> None:
    """Check that no other id writes to a partition: its records would hide this lineage's newest."""
    own = settings.completion_id if number == COMPLETIONS else settings.transactional_id(number - 1)
    if others := sorted(set(keys) - {own}):
        raise CONTROL_TOPIC.with_text(
            f"Partition {number} of {settings.control_topic} was expected to hold records of {own} only, "
            f"found some of {others[0] or 'nobody'}.",
            state_after="Nothing was written.",
            remedy="Give each lineage a control topic of its own; the default is one.",
        )


def _watermarks(client: Consumer, settings: SinkSettings, number: int) -> tuple[int, int]:
    from confluent_kafka import KafkaException, TopicPartition

    place = TopicPartition(settings.control_topic, number)
    wait = CLOCK.wait(_SETTLED_S, every_s=0.05)
    while True:
        try:
            return client.get_watermark_offsets(place, timeout=_TIMEOUT_S)
        except KafkaException as error:
            name = error.args[0].name()
            if name in SETTLING | UNKNOWN and wait.again():
                continue
            if name in UNKNOWN:
                raise missing(settings, f"partition {number}") from error
            raise


def _read(
    client: Consumer, settings: SinkSettings, starts: Mapping[int, int], found: Mapping[int, _Read]
) -> None:
    """Read partitions, each from an offset to where readers get."""
    from confluent_kafka import KafkaException, TopicPartition

    topic = settings.control_topic
    client.assign([TopicPartition(topic, number, start) for number, start in starts.items()])
    wait = CLOCK.wait(_TIMEOUT_S, every_s=0)
    pending = set(starts)
    while pending:
        message = cast("KafkaMessage | None", client.poll(_POLL_S))  # consume() would wait for a whole batch
        if message is None:
            if not wait.again():
                raise _not_read(settings, {number: found[number].high for number in pending})
            continue
        number, error = message.partition(), message.error()
        one = found[number]
        if error is None:
            one.values[(message.key() or b"").decode()] = message.value() or b""
        elif error.name() != "_PARTITION_EOF":
            raise KafkaException(error)
        elif message.offset() >= one.high:
            end = client.get_watermark_offsets(TopicPartition(topic, number), cached=True)[1]
            one.is_open = end > message.offset()
            pending.discard(number)


def _not_read(settings: SinkSettings, ends: Mapping[int, int]) -> ProducerFencedError:
    return ProducerFencedError(
        f"Partitions of {settings.control_topic} could not be read up to {ends} within {_TIMEOUT_S:g} s.",
        state_after=REPLAYS,
        remedy="Check that the brokers answer; the batch is run again.",
    )
