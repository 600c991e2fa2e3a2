"""What it costs to prove positions: many partitions, many records, one long suffix."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import MIB, Report, Spread, Table, Target, Usage, measure
from benchmarks.translating import MIRROR
from testbed import paths
from testbed.kafka import Broker

if TYPE_CHECKING:
    from confluent_kafka import Producer

SHIFT = 100
"""Records deleted on the source before they were mirrored: target offsets are so much smaller."""
VALUE_BYTES = 64
HEAP_MB = 2048
SETTINGS = {"log.index.size.max.bytes": "65536", "log.initial.task.delay.ms": "600000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Topics that are equal on both clusters, and where the job stands."""

    name: str
    topics: int
    partitions: int
    """Of each topic."""
    read: int
    """Records per partition before the position."""
    unread: int
    rounds: int = 1

    @property
    def records(self) -> int:
        """Unread records of all partitions."""
        return self.topics * self.partitions * self.unread


def many_partitions(*, quick: bool) -> Case:
    """All positions at the log's end."""
    return Case(
        name="log end",
        topics=2 if quick else 20,
        partitions=20 if quick else 500,
        read=64,
        unread=0,
        rounds=1 if quick else 3,
    )


def many_records(*, quick: bool) -> tuple[Case, ...]:
    """The same partitions with more and more records to compare."""
    sizes = (50, 100) if quick else (125, 250, 500, 1000, 2000)
    return tuple(
        Case(
            name=f"suffix-{size}",
            topics=1,
            partitions=20 if quick else 200,
            read=100,
            unread=size,
            rounds=1 if quick else 5,
        )
        for size in sizes
    )


def long_suffix(*, quick: bool) -> Case:
    """One partition that the job is far behind on."""
    return Case(name="long suffix", topics=1, partitions=1, read=100, unread=20_000 if quick else 10_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One translation of all positions of a case."""

    used: Usage
    seconds: float
    """Without the start of Python."""


class Bench:
    """Two brokers without a mirror: the same records are written to both, and what a mirror would note."""

    def __init__(self, folder: Path, old: Broker, new: Broker) -> None:
        self.folder, self.old, self.new = folder, old, new
        self._number = 0
        new.create_topic(MIRROR.positions_topic, partitions=1)

    def run(self, case: Case) -> list[Sample]:
        """Write the topics, then translate them in processes of their own."""
        self._number += 1
        topics = [f"case{self._number}.{number}" for number in range(case.topics)]
        self._write(case, topics)
        positions = [
            (topic, number, SHIFT + case.read) for topic in topics for number in range(case.partitions)
        ]
        task, answer = self.folder / "task.json", self.folder / "answer.json"
        servers = {"old": self.old.bootstrap, "new": self.new.bootstrap}
        task.write_text(json.dumps({**servers, "positions": positions, "shift": SHIFT}))
        command: list[str | Path] = [sys.executable, "-m", "benchmarks.translating", task, answer]
        env = {**os.environ, "PYTHONPATH": str(paths.ROOT)}
        samples = []
        for _ in range(case.rounds):
            used = measure(command, env=env)
            samples.append(Sample(used=used, seconds=json.loads(answer.read_text())["seconds"]))
        for broker in (self.old, self.new):
            for future in broker.admin().delete_topics(topics).values():
                future.result(60)
        return samples

    def _write(self, case: Case, topics: list[str]) -> None:
        for broker in (self.old, self.new):
            for topic in topics:
                broker.create_topic(topic, partitions=case.partitions)
        for broker, head in ((self.old, SHIFT), (self.new, 0)):
            producer = _producer(broker)
            for topic in topics:
                for number in range(case.partitions):
                    _fill(producer, topic, number, head, case.read + case.unread)
            _flush(producer)
        for topic in topics:
            self.old.delete_records(topic, dict.fromkeys(range(case.partitions), SHIFT))
        producer = _producer(self.new)
        position = json.dumps({"offset": SHIFT + case.read + case.unread - 1})
        for topic in topics:
            for number in range(case.partitions):
                place = {"cluster": MIRROR.source_alias, "partition": number, "topic": topic}
                key = json.dumps([MIRROR.connector_name, place])
                producer.produce(MIRROR.positions_topic, key=key, value=position)
        _flush(producer)


def _producer(broker: Broker) -> Producer:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "linger.ms": "50",
            "batch.size": "1000000",
            "queue.buffering.max.messages": "1000000",
            "queue.buffering.max.kbytes": "262144",
        }
    )


def _fill(producer: Producer, topic: str, number: int, head: int, records: int) -> None:
    """Write records that only their number tells apart, dated so that no retention deletes them."""
    written_ms = 1_000 * int(time.time() // 3600 * 3600)
    for index in range(-head, records):
        value = f"{topic}-{number}-{index}".ljust(VALUE_BYTES).encode()
        while True:
            try:
                producer.produce(topic, value=value, partition=number, timestamp=written_ms + index // 10)
                break
            except BufferError:
                producer.poll(0.5)


def _flush(producer: Producer) -> None:
    if producer.flush(300):
        raise RuntimeError("The broker did not take all records within 300 s.")


def run(*, quick: bool) -> Report:
    """Measure the three cases one after another."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-translate-")))
        heap_mb = 384 if quick else HEAP_MB
        old, new = (
            stack.enter_context(Broker(name, folder / name, heap_mb=heap_mb, settings=SETTINGS))
            for name in ("old", "new")
        )
        bench = Bench(folder, old, new)
        cases = (*many_records(quick=quick), long_suffix(quick=quick), many_partitions(quick=quick))
        found = {case: bench.run(case) for case in cases}
    return report(found, heap_mb, quick=quick)


def report(found: dict[Case, list[Sample]], heap_mb: int, *, quick: bool) -> Report:
    """Put the table together."""
    cpu = {case: Spread.of([one.used.cpu_s for one in samples]) for case, samples in found.items()}
    wall = {case: Spread.of([one.seconds for one in samples]) for case, samples in found.items()}
    peak = {
        case: Spread.of([one.used.peak_rss_bytes / MIB for one in samples]) for case, samples in found.items()
    }
    rows = tuple(
        (
            case.name.split("-")[0],
            f"{case.topics} x {case.partitions}",
            f"{case.unread:,}",
            wall[case].text(" s"),
            cpu[case].text(" s"),
            peak[case].text(" MiB", 0),
            f"{cpu[case].median / (2 * case.records) * 1e6:.1f}" if case.records else "",
        )
        for case in found
    )
    ends, long = many_partitions(quick=quick), long_suffix(quick=quick)
    sizes = many_records(quick=quick)
    middle = next((case for case in sizes if case.unread == 500), sizes[-1])
    growth = [
        (cpu[sizes[-1]].median - cpu[sizes[0]].median) / (sizes[-1].records - sizes[0].records),
        (cpu[sizes[1]].median - cpu[sizes[0]].median) / (sizes[1].records - sizes[0].records),
    ]
    count = f"{ends.topics * ends.partitions:,} partitions at the log's end"
    return Report(
        about=(
            f"Positions proved against two brokers with {heap_mb} MiB of heap each, the same records of "
            f"{VALUE_BYTES} bytes on both, target offsets {SHIFT} smaller; every verdict is checked to be "
            "exact. Wall time is without Python's start, CPU and memory are of the whole process."
        ),
        tables=(
            Table(
                columns=("", "topics x partitions", "unread each", "wall", "CPU", "peak", "us/record"),
                rows=rows,
                detail=True,
            ),
        ),
        targets=(
            Target(what=f"{count}: wall time", limit=30, found=wall[ends], unit=" s"),
            Target(what=f"{count}: memory", limit=500, found=peak[ends], unit=" MiB"),
            Target(
                what=f"{middle.partitions} partitions, {middle.unread} unread records each: CPU",
                limit=1.5,
                found=cpu[middle],
                unit=" s",
            ),
            Target(
                what="CPU per further record: largest sizes against smallest",
                limit=1.25,
                found=Spread.of([growth[0] / growth[1]]),
            ),
            Target(what=f"{long.unread:,} unread records: CPU", limit=70, found=cpu[long], unit=" s"),
        ),
        raw={case.name: [asdict(one) for one in samples] for case, samples in found.items()},
    )
