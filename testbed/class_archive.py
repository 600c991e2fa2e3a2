"""``python -m testbed.class_archive``: make the archives from which the test bed's JVMs take their classes.

Spark, a broker and MirrorMaker spend most of their start on loading and checking classes. Each runs here once
for all that follow, and leaves its classes in a file that the others map. A file serves JVMs whose class path
begins alike. ``python -m testbed.class_archive 3.5`` makes the one of another Spark.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from testbed import paths
from testbed.drivers import SPARK_PYTHON, spark_conf, spark_env
from testbed.jvm import PROGRAMS, QUICK, Program, archive
from testbed.kafka import Broker
from testbed.mirror import Mirror, MirrorSettings
from testbed.producer import OrderBook
from testbed.spark import spark_paths
from testbed.waiting import wait_until

TOPIC, PARTITIONS, ORDERS = "orders", 2, 100
_TIMEOUT_S = 900
_ANY_JOB = """
import sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").load()
counts = rows.groupBy((F.col("value") % 7).alias("k")).agg(F.count("*"), F.max("value"))
(counts.writeStream.outputMode("complete").foreachBatch(lambda batch, _: batch.collect())
 .option("checkpointLocation", sys.argv[1]).trigger(once=True).start().awaitTermination())
"""
"""Needs no broker, and runs on every Spark."""


def main() -> int:
    """Make the archives of all programs, or the one of a Spark that is named."""
    if minors := sys.argv[1:]:
        for minor in minors:
            _make_of_spark(minor)
        return 0
    return _make_all()


def _make_of_spark(minor: str) -> None:
    draft = archive("spark", minor).with_suffix(".draft")
    with tempfile.TemporaryDirectory() as name:
        script = Path(name) / "job.py"
        script.write_text(_ANY_JOB)
        options = " ".join((*QUICK, f"-XX:ArchiveClassesAtExit={draft}"))
        store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        spark = spark_paths(minor=minor)
        command = [str(spark.spark_submit), "--master", "local[2]"]
        for key, value in {
            **spark_conf(minor),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.streaming.stateStore.providerClass": store,
            "spark.driver.extraJavaOptions": options,
        }.items():
            command += ["--conf", f"{key}={value}"]
        command += [str(script), f"{name}/checkpoint"]
        env = {**spark_env(), **spark.env}
        subprocess.run(command, env=env, check=True, timeout=_TIMEOUT_S)  # noqa: S603  # our own command
    draft.rename(archive("spark", minor))


def _make_all() -> int:
    """Copy a topic and run the orders job once, so that most of what any test needs is loaded."""
    archive("spark").parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        old = Broker("archive", scratch / "old", class_options=(_write("kafka"),))
        with old, Broker("other", scratch / "new", class_options=()) as new:
            _produce(old)
            _run_mirror(old, new, scratch / "mirror")
            _run_job(old, scratch)
            old.service.stop(grace_s=_TIMEOUT_S)
    for program in PROGRAMS:
        _draft(program).rename(archive(program))
    return 0


def _draft(program: Program) -> Path:
    return archive(program).with_suffix(".draft")


def _write(program: Program) -> str:
    """Return the option with which a JVM writes its archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={_draft(program)}"


def _produce(broker: Broker) -> None:
    from confluent_kafka import Producer

    broker.create_topic(TOPIC, partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    book = OrderBook(customers=20, partitions=PARTITIONS)
    for _ in range(ORDERS):
        order = book.next()
        producer.produce(TOPIC, value=order.to_json(), partition=order.partition)
    producer.flush(30)


def _run_mirror(old: Broker, new: Broker, folder: Path) -> None:
    settings = MirrorSettings(source_bootstrap=old.bootstrap, target_bootstrap=new.bootstrap, topics=TOPIC)
    mirror = Mirror(folder, settings, class_options=(_write("mirror"),))
    mirror.start()
    new.wait_for_topic(TOPIC, timeout_s=_TIMEOUT_S)
    wait_until(
        "the mirror has copied", lambda: sum(end for _, end in new.log_range(TOPIC).values()) >= ORDERS
    )
    mirror.service.stop(grace_s=_TIMEOUT_S)


def _run_job(broker: Broker, scratch: Path) -> None:
    options = " ".join((*QUICK, _write("spark")))
    command = [str(SPARK_PYTHON.with_name("spark-submit")), "--master", "local[2]"]
    for name, value in {**spark_conf(), "spark.driver.extraJavaOptions": options}.items():
        command += ["--conf", f"{name}={value}"]
    command.append(str(paths.ROOT / "examples" / "orders_job.py"))
    command += ["--bootstrap", broker.bootstrap, "--topic", TOPIC, "--available-now"]
    command += ["--output", str(scratch / "output"), "--checkpoint", str(scratch / "checkpoint")]
    subprocess.run(command, env=spark_env(), check=True, timeout=_TIMEOUT_S)  # noqa: S603  # our own command


if __name__ == "__main__":
    sys.exit(main())
