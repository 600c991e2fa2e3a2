"""The transactional sink beside Flink's ``KafkaSink``, exactly once: the same records and broker."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import PAIRS, Report, Spread, Table, Target, measure, ratios
from benchmarks.flink import FlinkCluster
from benchmarks.sink_speed import SETTINGS, TIMEOUT_S, Case
from testbed import paths
from testbed.drivers import SPARK_PYTHON, spark_env
from testbed.kafka import Broker

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS, PARTITIONS, SHARDS = 1000, 4, 2
CHECKPOINT = "1s"
"""Flink commits so often; a batch of ours takes about as long."""
CASES = (
    Case(rows=300_000, value_bytes=100, batches=8, shards=(SHARDS,)),
    Case(rows=150_000, value_bytes=1000, batches=6, shards=(SHARDS,)),
)
QUICK = (Case(rows=20_000, value_bytes=100, batches=2, shards=(SHARDS,)),)
LEAST = 1.0
FLINK, OURS, NATIVE = "Flink 2.3, KafkaSink, exactly once", "ours", "Spark's own, at least once"


def run(*, quick: bool) -> Report:
    """Let each write all records of a case, in turn."""
    cases = QUICK if quick else CASES
    found: dict[str, dict[str, list[float]]] = {
        case.name: {FLINK: [], OURS: [], NATIVE: []} for case in cases
    }
    with tempfile.TemporaryDirectory(prefix="bench-sinks-") as name:
        folder = Path(name)
        broker = Broker("bench", folder / "broker", heap_mb=1024, settings=SETTINGS)
        jars = paths.jar_set("flink-kafka")
        with broker, FlinkCluster(folder / "flink", jars=jars) as cluster:
            for number in range(1 if quick else PAIRS):
                for case in cases:
                    took_s = by_flink(cluster, broker, case, f"flink-{case.value_bytes}-{number}")
                    found[case.name][FLINK].append(case.rows * case.batches / took_s)
                for case, rates in zip(cases, by_spark(folder, broker, cases), strict=True):
                    for how, rate in rates.items():
                        found[case.name][how].append(rate)
    return report(found)


def by_flink(cluster: FlinkCluster, broker: Broker, case: Case, topic: str) -> float:
    """Let a job of Flink write a case's records; returns the seconds that it ran."""
    broker.create_topic(topic, partitions=PARTITIONS)
    options = {"execution.checkpointing.interval": CHECKPOINT}
    return cluster.run_to_end(cluster.submit(statements(broker.bootstrap, case, topic), options))


def statements(servers: str, case: Case, topic: str) -> list[str]:
    """Return Flink's job: a bounded sequence of numbers, as keys and values like those of Spark's streams."""
    last = case.rows * case.batches - 1
    sink = {
        "connector": "kafka",
        "properties.bootstrap.servers": servers,
        "topic": topic,
        "key.format": "raw",
        "key.fields": "key",
        "value.format": "raw",
        "value.fields-include": "EXCEPT_KEY",
        "sink.delivery-guarantee": "exactly-once",
        "sink.transactional-id-prefix": topic,
        "properties.transaction.timeout.ms": "600000",
    }
    options = ", ".join(f"'{name}' = '{value}'" for name, value in sink.items())
    return [
        "CREATE TABLE numbers (v BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '100000000', "
        f"'fields.v.kind' = 'sequence', 'fields.v.start' = '0', 'fields.v.end' = '{last}')",
        f"CREATE TABLE `{topic}` (`key` STRING, `value` STRING) WITH ({options})",
        f"INSERT INTO `{topic}` SELECT CAST(MOD(v, {KEYS}) AS STRING), "  # noqa: S608
        f"LPAD(CAST(v AS STRING), {case.value_bytes}, 'x') FROM numbers",
    ]


def by_spark(folder: Path, broker: Broker, cases: tuple[Case, ...]) -> list[dict[str, float]]:
    """Let Spark's streams write the cases; returns records per second by sink, whole batches counted."""
    task, answer = folder / "task.json", folder / "answer.json"
    wanted = {"rounds": 1, "cases": [asdict(case) for case in cases], "servers": broker.bootstrap}
    task.write_text(json.dumps(wanted))
    measure(
        [SPARK_PYTHON, "-m", "benchmarks.jobs.sink_streams", task, answer],
        env={**os.environ, **spark_env(), "PYTHONPATH": str(paths.ROOT)},
        cwd=paths.ROOT,
        timeout_s=TIMEOUT_S,
    )
    told = json.loads(answer.read_text())["cases"]
    return [
        {how: _rate(case, contenders[name][0]) for how, name in ((OURS, str(SHARDS)), (NATIVE, "native"))}
        for case, contenders in zip(cases, told, strict=True)
    ]


def _rate(case: Case, batches: list[Mapping[str, float]]) -> float:
    return 1000 * case.rows * len(batches) / sum(batch["whole_ms"] for batch in batches)


def report(found: Mapping[str, Mapping[str, list[float]]]) -> Report:
    """Show records per second, and ours against Flink's."""
    rows = tuple(
        (name, how, Spread.of(of).text(digits=0), ratios(of, by[FLINK]).text("x"))
        for name, by in found.items()
        for how, of in by.items()
    )
    # A promise's limit is what may not be passed, so the ratio is turned round.
    against = {name: ratios(by[FLINK], by[OURS]) for name, by in found.items()}
    return Report(
        about=(
            f"All records of a case, numbers with keys, into a topic of {PARTITIONS} partitions of one "
            "broker. Flink: two slots, from the start of its tasks to the end of the job, a transaction for "
            f"each checkpoint, one each {CHECKPOINT.removesuffix('s')} s. Ours: {SHARDS} shards, whole "
            "batches, Spark's planning and logs included, without the first."
        ),
        tables=(Table(columns=("batch", "sink", "records per second", "against Flink"), rows=rows),),
        targets=tuple(
            Target(what=f"Flink's records per second against ours, {name}", limit=1 / LEAST, found=ratio)
            for name, ratio in against.items()
        ),
        raw={name: dict(by) for name, by in found.items()},
    )
