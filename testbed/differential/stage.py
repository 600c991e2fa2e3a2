"""Where a script runs: its folders, topics and arguments, once for plain Spark and once for the agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from testbed.differential import outputs
from testbed.differential.inputs import Feed
from testbed.differential.script import RELEASED, render
from testbed.jvm import spark_options
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.differential.spec import ScriptSpec
    from testbed.kafka import Broker


def spark_conf() -> dict[str, str]:
    """Return what every driver is submitted with."""
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.databricks.delta.stats.collect": "false",
        "spark.sql.streaming.stopTimeout": "60s",
        "spark.sql.streaming.pollingDelay": "100ms",  # else a query without a trigger is busy with looking
    }


def submit_conf(class_path: str) -> dict[str, str]:
    """Return what a driver needs besides if its JVM is its own."""
    return {
        "spark.driver.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": spark_options(),
        "spark.driver.memory": "600m",
    }


def driver_env(folder: Path) -> dict[str, str]:
    """Return the environment of every driver."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "OPENBLAS_NUM_THREADS": "1", **spark_paths().env}


@dataclass(slots=True, kw_only=True)
class Stage:
    """One run's folders and topics."""

    spec: ScriptSpec
    folder: Path
    broker: Broker
    topics: str
    feed: Feed = field(init=False)

    def __post_init__(self) -> None:
        """Write the script and make the places it reads and writes."""
        for name in ("in", "out", "checkpoints"):
            (self.folder / name).mkdir(parents=True)
        self.script.write_text(render(self.spec))
        self.feed = Feed(spec=self.spec, folder=self.folder / "in", broker=self.broker, topics=self.topics)
        self.feed.prepare()

    @property
    def script(self) -> Path:
        """The script's file."""
        return self.folder / "script.py"

    @property
    def checkpoints(self) -> Path:
        """What the script is told to use; under the agent nothing may come there."""
        return self.folder / "checkpoints"

    @property
    def args(self) -> tuple[str, ...]:
        """Arguments of the script."""
        places = (str(self.folder / name) for name in ("in", "out", "checkpoints"))
        return (*places, self.broker.bootstrap, self.topics)

    def hold(self) -> None:
        """Let a staggered script wait after each start of a query."""
        (self.folder / "in" / RELEASED).unlink(missing_ok=True)

    def release(self) -> None:
        """Let it start the next ones."""
        (self.folder / "in" / RELEASED).touch()

    def written(self, place: int) -> list[outputs.Written]:
        """Return what stands in a query's output."""
        folder = self.folder / "out" / str(place)
        topic = f"{self.topics}-out-{place}"
        return outputs.read(self.spec.queries[place], folder, self.broker, topic)
