"""Two clusters, two MirrorMakers and topics of every kind, with a ledger of what was written to them."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Literal, Self

from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.mirror.lag import MirrorBehind, wait_caught_up
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.mirror.topics import read_positions
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.kafka.settings import KafkaCluster
from benchmarks.translation_ledger import NUMBER, Contents, Ledger, entry_of
from benchmarks.translation_truth import Truth
from testbed.kafka import Broker
from testbed.mirror import Mirror
from testbed.mirror import MirrorSettings as MirrorProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from airflow_flinkstyle.kafka.reading import KafkaMessage
    from airflow_flinkstyle.types import TopicPartition

Flow = Literal["once", "least"]

SETTLE_S = 180.0
SHORT = 7
"""Records that a stopped mirror is behind."""

MIRRORS: dict[Flow, MirrorSettings] = {
    "once": MirrorSettings(source_alias="left", target_alias="right", replication_policy="default"),
    "least": MirrorSettings(source_alias="west", target_alias="east", isolation="read_uncommitted"),
}
KINDS: dict[str, tuple[Flow, int, str]] = {
    "plain": ("once", 3, "unique records with keys"),
    "transactions": ("once", 2, "transactions, every fourth aborted"),
    "identical": ("once", 2, "all records equal, timestamps too"),
    "periodic": ("once", 1, "seven records again and again"),
    "null": ("once", 2, "no keys, many values null or equal"),
    "compacted": ("once", 2, "compacted on the target, tombstones cleaned there; not yet on the source"),
    "head-deleted": ("once", 1, "the older part deleted before it was mirrored"),
    "empty": ("once", 3, "never written, emptied before and emptied after it was mirrored"),
    "append-time": ("once", 1, "the target overwrites timestamps"),
    "own": ("once", 2, "the target's own producers write between and after the copies"),
    "behind": ("once", 2, "MirrorMaker stopped 7 records short, unique and identical ones"),
    "killed": ("least", 2, "MirrorMaker killed, so that it repeats itself"),
    "aborted": ("least", 1, "transactions, aborted records copied as if they were not"),
    "hole": ("least", 1, "the source deleted records while MirrorMaker was down"),
}
"""Kind -> which MirrorMaker, partitions, what is special."""


class Stage:
    """Two brokers, and what happens to the topics until they are compared."""

    def __init__(self, folder: Path, records: int) -> None:
        self.records = records
        self.truths: dict[TopicPartition, Truth] = {
            (f"{flow}.{kind}", number): Truth(kind=kind, compacted=kind == "compacted")
            for kind, (flow, partitions, _) in KINDS.items()
            for number in range(partitions)
        }
        # The target cleans what is dirty at once; other clusters do so within minutes to days.
        cleaning = {"log.cleaner.backoff.ms": "300", "log.cleaner.dedupe.buffer.size": str(16 << 20)}
        self._old, self._new = (
            Broker("old", folder / "old"),
            Broker("new", folder / "new", settings=cleaning),
        )
        self._folder = folder
        self._contents = Contents()
        self._running = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for broker in (self._old, self._new):
                stack.callback(broker.stop)
                broker.launch()
            for broker in (self._old, self._new):
                broker.wait_ready()
            self._running = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    @property
    def old(self) -> KafkaCluster:
        """The source."""
        return KafkaCluster(name="old", config={"bootstrap.servers": self._old.bootstrap})

    @property
    def new(self) -> KafkaCluster:
        """The target."""
        return KafkaCluster(name="new", config={"bootstrap.servers": self._new.bootstrap})

    def partitions(self, flow: Flow) -> list[TopicPartition]:
        """Return the source partitions that a MirrorMaker copies."""
        return [tp for tp, truth in self.truths.items() if KINDS[truth.kind][0] == flow]

    @contextlib.contextmanager
    def mirrored(self) -> Iterator[None]:
        """Write, mirror, disturb, mirror again; inside, both mirrors run and are level."""
        self._create()
        source = Ledger(self.old, self.truths)
        copies = {(MIRRORS["once"].target_topic(topic), n): self.truths[topic, n] for topic, n in self.truths}
        own, owned = Ledger(self.new, copies, own=True), MIRRORS["once"].target_topic("once.own")
        for topic, partition in self.truths:
            self._write_first(source, topic, partition)
        self._old.delete_records("once.head-deleted", {0: int(self.records * 0.4)})
        self._old.delete_records("once.empty", {1: self.records})
        with self._mirror("once"):
            with self._mirror("least", flush_interval_ms=10_000) as least:
                self._settle("once", "least")
                self._kill_with_a_hole(least, source)
            own.write(owned, 0, self._contents.unique(50))
            with self._mirror("least"):
                for partition in (0, 1):
                    source.write("once.own", partition, self._contents.unique(self.records // 2))
                self._clean(source)
                self._settle("once", "least")
                for partition in (0, 1):
                    own.write(owned, partition, self._contents.unique(50))
                self._old.delete_records("once.empty", {2: self.records})
                yield

    def fall_behind(self) -> None:
        """Write a little more, now that no mirror runs, and read what is where."""
        source = Ledger(self.old, self.truths)
        source.write("once.behind", 0, self._contents.unique(SHORT))
        source.write("once.behind", 1, self._contents.equal(SHORT))
        self._read_back()

    def _create(self) -> None:
        for kind, (flow, partitions, _) in KINDS.items():
            config = {"cleanup.policy": "compact"} if kind == "compacted" else {}
            self._old.create_topic(f"{flow}.{kind}", partitions=partitions, config=config)
        copy = MIRRORS["once"].target_topic("once.append-time")
        self._new.create_topic(copy, partitions=1, config={"message.timestamp.type": "LogAppendTime"})

    def _write_first(self, source: Ledger, topic: str, partition: int) -> None:
        kind, count, contents = self.truths[topic, partition].kind, self.records, self._contents
        if kind in ("transactions", "aborted"):
            source.transact(topic, partition, contents.unique(count), contents.rng)
        elif kind == "identical" or (kind == "behind" and partition == 1):
            source.write(topic, partition, contents.equal(count))
        elif kind == "periodic":
            source.write(topic, partition, contents.periodic(count))
        elif kind == "null":
            source.write(topic, partition, contents.null(count))
        elif kind == "compacted":
            source.write(topic, partition, contents.keyed(count, deleted=0.03 * partition))
        elif (kind, partition) != ("empty", 0):
            source.write(topic, partition, contents.unique(count))

    @contextlib.contextmanager
    def _mirror(self, flow: Flow, *, flush_interval_ms: int = 1000) -> Iterator[Mirror]:
        names = MIRRORS[flow]
        settings = MirrorProcess(
            source_bootstrap=self._old.bootstrap,
            target_bootstrap=self._new.bootstrap,
            topics=rf"{flow}\..*",
            source_alias=names.source_alias,
            target_alias=names.target_alias,
            policy=names.replication_policy,
            exactly_once=flow == "once",
            flush_interval_ms=flush_interval_ms,
            # A killed worker's tasks would be kept for it, five minutes long.
            more={f"{names.target_alias}.scheduled.rebalance.max.delay.ms": "0"},
        )
        with Mirror(self._folder / flow, settings) as mirror:
            yield mirror

    def _settle(self, *flows: Flow) -> None:
        for flow in flows:
            topics = {topic for topic, _ in self.partitions(flow)}
            outcome = wait_caught_up(self.old, self.new, MIRRORS[flow], topics, timeout_s=SETTLE_S)
            if isinstance(outcome, MirrorBehind):
                raise TimeoutError(outcome.describe())

    def _kill_with_a_hole(self, least: Mirror, source: Ledger) -> None:
        """Kill MirrorMaker between a copy and the note of it; delete what it has not copied yet."""
        burst = self.records // 3
        before = self._new.log_range("least.killed")
        for partition in before:
            source.write("least.killed", partition, self._contents.unique(burst))
        deadline = time.monotonic() + SETTLE_S
        while any(end == before[n][1] for n, (_, end) in self._new.log_range("least.killed").items()):
            if time.monotonic() > deadline:
                raise TimeoutError("MirrorMaker copied nothing of the burst")
            time.sleep(0.1)
        least.kill()
        source.write("least.hole", 0, self._contents.unique(burst))
        self._old.delete_records("least.hole", {0: self.records + burst // 2})
        source.write("least.hole", 0, self._contents.unique(burst))

    def _clean(self, source: Ledger) -> None:
        """Let the target's compaction remove what is superseded, and tombstones too."""
        self._settle("once")
        copy = MIRRORS["once"].target_topic("once.compacted")
        self._new.alter_topic(
            copy, {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0"}
        )
        for turn in range(3):  # a segment rolls with the next record; tombstones go in a second pass
            for partition in (0, 1):
                source.write("once.compacted", partition, self._contents.keyed(20, prefix=f"turn{turn}-"))
            self._settle("once")
            time.sleep(1.5)

    def _read_back(self) -> None:
        """Fill in what both logs hold now."""
        source = describe(self.old, {topic for topic, _ in self.truths})
        for flow, mirror in MIRRORS.items():
            positions = read_positions(self.new, mirror)
            copies = {(mirror.target_topic(tp[0]), tp[1]): self.truths[tp] for tp in self.partitions(flow)}
            for tp in self.partitions(flow):
                log_range, truth = source.topics[tp[0]].partitions[tp[1]], self.truths[tp]
                truth.source_start, truth.source_end = log_range.start, log_range.end
                truth.mirrored_to = positions.get(tp, 0)
            target = describe(self.new, {topic for topic, _ in copies})

            def keep(
                tp: TopicPartition, record: KafkaMessage, copies: dict[TopicPartition, Truth] = copies
            ) -> None:
                number = int(dict(record.headers() or ())[NUMBER] or b"")
                copies[tp].target.append(entry_of(number, record))

            ranges = {
                (topic, number): ReadRange(low=log_range.start, high=log_range.end)
                for topic, view in target.topics.items()
                for number, log_range in view.partitions.items()
            }
            scan(self.new, ranges, partial(_note, copies), "read_committed")


def _note(copies: Mapping[TopicPartition, Truth], tp: TopicPartition, record: KafkaMessage) -> None:
    number = int(dict(record.headers() or ())[NUMBER] or b"")
    copies[tp].target.append(entry_of(number, record))
