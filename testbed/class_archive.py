"""``python -m testbed.class_archive``: make the archive from which Spark's JVMs take their classes.

A driver spends most of its start on loading and checking classes. One job is run here for all that follow,
and its JVM leaves its classes in a file that the others map. It serves JVMs whose class path begins alike.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from testbed import paths
from testbed.drivers import SPARK_PYTHON, spark_conf, spark_env
from testbed.jvm import ARCHIVE, QUICK
from testbed.kafka import Broker
from testbed.producer import OrderBook

TOPIC, PARTITIONS = "orders", 2
_TIMEOUT_S = 300


def main() -> int:
    """Run the orders job once, so that most of what any job needs is loaded."""
    from confluent_kafka import Producer

    with tempfile.TemporaryDirectory() as scratch, Broker("archive", Path(scratch) / "kafka") as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        book = OrderBook(customers=20, partitions=PARTITIONS)
        for _ in range(100):
            order = book.next()
            producer.produce(TOPIC, value=order.to_json(), partition=order.partition)
        producer.flush(30)
        draft = ARCHIVE.with_suffix(".draft")
        draft.parent.mkdir(parents=True, exist_ok=True)
        _run_job(broker, Path(scratch), draft)
    draft.rename(ARCHIVE)
    return 0


def _run_job(broker: Broker, scratch: Path, draft: Path) -> None:
    options = " ".join((*QUICK, f"-XX:ArchiveClassesAtExit={draft}"))
    command = [str(SPARK_PYTHON.with_name("spark-submit")), "--master", "local[2]"]
    for name, value in {**spark_conf(), "spark.driver.extraJavaOptions": options}.items():
        command += ["--conf", f"{name}={value}"]
    command.append(str(paths.ROOT / "examples" / "orders_job.py"))
    command += ["--bootstrap", broker.bootstrap, "--topic", TOPIC, "--available-now"]
    command += ["--output", str(scratch / "output"), "--checkpoint", str(scratch / "checkpoint")]
    subprocess.run(command, env=spark_env(), check=True, timeout=_TIMEOUT_S)  # noqa: S603  # our own command


if __name__ == "__main__":
    sys.exit(main())
