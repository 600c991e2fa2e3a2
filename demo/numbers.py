"""``python -m demo.numbers``: a Kafka broker with numbered records, for docs/adopt-a-job.md; Ctrl-C ends it.

In another terminal: ``--write 500`` writes the next 500; ``--count`` compares the job's count with the topic.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import threading
from typing import TYPE_CHECKING

from testbed import paths
from testbed.kafka import Broker
from testbed.keys import SIGNING_ENV
from testbed.spark import spark_paths
from testbed.topics import Reached

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = paths.HOME / "adopt"
TOPIC, JOB = "numbers", "numbers"
FIRST = 1000
SERVERS = "KAFKA"
"""Variable of the second terminal with the broker's address."""


class Known(Reached):
    """The broker that another terminal runs."""

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients."""
        return os.environ[SERVERS]


def stay() -> None:
    """Run the broker until a person ends it."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    with Broker("demo", FOLDER / "kafka") as broker:
        broker.create_topic(TOPIC, partitions=2)
        write(broker, FIRST)
        print(f"{FIRST} numbered records are in topic {TOPIC} of {broker.bootstrap}.", flush=True)
        print(f"In a second terminal: source {write_terminal(broker)}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("The broker has ended.", flush=True)


def write_terminal(broker: Broker) -> Path:
    """Write what the second terminal needs, and return the file to source."""
    spark = spark_paths()
    jars = [str(jar) for jar in spark.jars]
    settings = {
        "spark.jars": ",".join(jars),
        "spark.driver.extraClassPath": ":".join(jars),
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    conf = FOLDER / "spark-conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "".join(f"{name} {value}\n" for name, value in settings.items())
    )
    (FOLDER / "kafka.properties").write_text(f"bootstrap.servers={broker.bootstrap}\n")
    programs = shlex.quote(os.pathsep.join([str(paths.VENV_AIRFLOW / "bin"), str(spark.python.parent)]))
    variables = {
        SERVERS: broker.bootstrap,
        "DEMO": str(FOLDER),
        "FLINKSTYLE_ROOT": str(FOLDER / "savepoints"),
        "FLINKSTYLE_JOB": JOB,
        "SPARK_CONF_DIR": str(conf),
        **spark.env,
        **SIGNING_ENV,
    }
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    file = FOLDER / "env"
    file.touch(mode=0o600)  # it holds a key
    file.write_text("".join([f'export PATH={programs}:"$PATH"\n', *lines]))
    return file


def write(broker: Reached, count: int) -> int:
    """Write the next numbers, and return how many there are by now."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    begin = written(broker)
    for number in range(begin, begin + count):
        producer.produce(TOPIC, str(number).encode(), partition=number % 2)
    if producer.flush(30):
        raise RuntimeError(f"The broker at {broker.bootstrap} did not take all records.")
    return begin + count


def written(broker: Reached) -> int:
    """Return how many numbers the topic has: 0 to one less."""
    return sum(end for _, end in broker.log_range(TOPIC).values())


def judge(broker: Reached) -> str:
    """Compare what the job counted with what the topic has: how many, and their sum."""
    there, file = written(broker), FOLDER / "counted.json"
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):  # there is none yet, or it is being written
        return "nothing is counted yet"
    if (found.get("records"), found.get("sum")) == (there, sum(range(there))):
        return f"batch {found['batch']}: each of {there} records is counted once"
    return f"{there} records, but this is counted: {found}"


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="demo.numbers", description=__doc__)
    parser.add_argument("--write", type=int, metavar="COUNT", help="write the next numbers")
    parser.add_argument("--count", action="store_true", help="compare the job's count with the topic")
    options = parser.parse_args()
    if options.write:
        print(f"{write(Known('demo'), options.write)} numbered records are in topic {TOPIC}")
    elif options.count:
        print(judge(Known("demo")))
    else:
        stay()
    return 0


if __name__ == "__main__":
    sys.exit(main())
