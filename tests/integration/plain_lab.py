"""One job as its author has it: run by plain Spark, adopted by this package, judged row by row."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from typer.testing import CliRunner

from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.jobs.adoption.outside import LiveClusters
from airflow_flinkstyle.jobs.adoption.running import ADOPTION_PHASES, RunningAdoption
from airflow_flinkstyle.jobs.adoption.taking import WatchedCheckpoint
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_as_hadoop, open_store
from testbed import paths
from testbed.drivers import s3_env, s3_settings, spark_conf
from testbed.keys import SIGNER
from testbed.spark import spark_paths
from testbed.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_flinkstyle.jobs.adoption.ending import Ending
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from testbed.kafka import Broker
    from testbed.s3 import S3Server

SCRIPT = paths.ROOT / "tests" / "e2e" / "scripts" / "plain_job.py"
JOB, QUERIES = "plain", ("totals", "rows")
CONF = {"spark.sql.shuffle.partitions": "2"}


def counted_in(out: Path) -> tuple[int, int]:
    """Return how many records the newest batch has counted, and their sum."""
    path = out / "totals.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    if not lines:
        return 0, 0
    totals = json.loads(lines[-1])["totals"].values()
    return sum(count for count, _ in totals), sum(total for _, total in totals)


class Copy(NamedTuple):
    """A savepoint that was restored for plain Spark."""

    own: Path
    out: Path

    def counted(self) -> tuple[int, int]:
        return counted_in(self.out)


class Plain:
    """One job in a folder: as plain Spark runs it, and as this package does."""

    def __init__(self, folder: Path, broker: Broker, topic: str, s3: S3Server | None = None) -> None:
        self.folder, self.broker, self.topic = folder, broker, topic
        self.bucket = s3.create_bucket(topic) if s3 is not None else ""
        self.s3_conf = s3.spark_conf() if s3 is not None else {}
        self.s3_env = s3_env(s3) if s3 is not None else {}
        settings = s3_settings(s3) if s3 is not None else None
        self.out, self.produced = folder / "out", 0
        self.out.mkdir(parents=True)
        broker.create_topic(topic, partitions=2)
        self.root = f"s3://{self.bucket}/root" if self.bucket else str(folder / "root")
        store = open_store(self.root, settings)
        self.client = JobClient(
            view=JobView(
                board=JobBoard(store, JOB),
                repository=SavepointRepository(store, JOB),
                deployment=DetachedDeployment(),
                signer=SIGNER,
                secret_env=self.s3_env,
                open_checkpoint=partial(open_as_hadoop, s3=settings),
            )
        )
        self.processes: list[subprocess.Popen[bytes]] = []
        self.config = folder / "kafka.properties"
        self.config.write_text(f"bootstrap.servers={broker.bootstrap}\n")

    def place(self, name: str) -> str:
        """Return where Spark finds a folder of this name."""
        return f"s3a://{self.bucket}/{name}" if self.bucket else str(self.folder / name)

    def delete(self, place: str) -> None:
        """Delete what is in a folder, as a person would once nothing needs it."""
        store = self.client.view.open_checkpoint(place)
        for info in list(store.list()):
            store.delete(info.key)

    def produce(self, count: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5})
        for number in range(self.produced, self.produced + count):
            producer.produce(self.topic, str(number).encode(), partition=number % 2)
        assert producer.flush(30) == 0
        self.produced += count

    @contextmanager
    def fed(self) -> Iterator[None]:
        """Produce all the time for as long as the block runs."""
        ended = Event()

        def feed() -> None:
            while not ended.wait(0.1):
                self.produce(10)

        feeder = Thread(target=feed)
        feeder.start()
        try:
            yield
        finally:
            ended.set()
            feeder.join()

    # --- plain Spark ---

    def arguments(self, checkpoints: Path | str, until: str, out: str = "") -> list[str]:
        return [self.broker.bootstrap, self.topic, str(checkpoints), out or str(self.out), until]

    def submit(
        self,
        checkpoints: Path | str,
        until: str,
        out: str = "",
        *,
        options: Sequence[str] = ("--master", "local[2]"),
        conf: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        script: str = str(SCRIPT),
    ) -> subprocess.Popen[bytes]:
        """Run the script as its author does."""
        spark = spark_paths()
        settings = {**spark_conf(), **CONF, **self.s3_conf, **(conf or {})}
        named = [part for item in settings.items() for part in ("--conf", "=".join(item))]
        argv = [str(spark.spark_submit), *options, *named, script]
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), **spark.env, **(env or {})}
        with (self.folder / f"plain-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [*argv, *self.arguments(checkpoints, until, out)],
                env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    @staticmethod
    def has_committed(checkpoints: Path) -> bool:
        return all((checkpoints / name / "commits" / "0").exists() for name in QUERIES)

    def run_to_the_end(self, checkpoints: Path | str) -> None:
        assert self.submit(checkpoints, "now").wait(PATIENCE_S) == 0, self.logs()

    # --- this package ---

    def cli(self, *args: str) -> dict[str, Any]:
        """Run a command that must succeed; the options that all share stand behind its words."""
        root = ["--root", self.root, "--job", JOB, "--json"]
        result = CliRunner().invoke(app, [*args, *root], env={"COLUMNS": "200", **self.s3_env})
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def locations(self, option: str, checkpoints: Path | str) -> list[str]:
        return [part for name in QUERIES for part in (option, f"{name}={checkpoints}/{name}")]

    def adopt(self, checkpoints: Path | str) -> dict[str, Any]:
        where = self.locations("--checkpoint", checkpoints)
        return self.cli("job", "adopt", *where, "--kafka-config", str(self.config), "--still", "0.5")

    def spec(self) -> JobSpec:
        own = self.place("ck")  # the script is as it was
        return JobSpec(
            name=JOB,
            script=str(SCRIPT),
            args=tuple(self.arguments(own, "on")),
            conf=CONF,
            checkpoint_root=self.place("checkpoints"),
            lease_s=8,
        )

    def target(self) -> SubmitTarget:
        spark = spark_paths()
        return SubmitTarget(
            master="local[2]",
            python=str(spark.python),
            spark_home=str(spark.spark_home),
            conf=spark_conf(),
            secret_env=self.s3_env,
            working_dir=str(self.folder),
            log_dir=str(self.folder / "logs"),
        )

    def start(self, key: str) -> int:
        handle = self.client.starts.start(self.spec(), self.target(), claim_key=key)
        self.client.drivers.wait_running(handle.generation, timeout_s=PATIENCE_S)
        return handle.generation

    def watched(self, checkpoints: Path) -> WatchedCheckpoint:
        cluster = KafkaCluster(name="old", config={"bootstrap.servers": self.broker.bootstrap})
        return WatchedCheckpoint(
            checkpoints={name: str(checkpoints / name) for name in QUERIES}, clusters=LiveClusters([cluster])
        )

    def adoption(self, checkpoints: Path, ending: Ending) -> RunningAdoption:
        """Return the adoption of the job while it runs."""
        return RunningAdoption(
            client=self.client,
            journal=CutoverJournal(
                self.client.view.board.store, JOB, "adopt", ADOPTION_PHASES, signer=SIGNER
            ),
            spec=self.spec(),
            target=self.target(),
            rehearse=Rehearse(batches=1),
            watched=self.watched(checkpoints),
            ending=ending,
            by="test",
        )

    def copied(self, manifest: Manifest) -> Copy:
        """Restore a savepoint where plain Spark can run it, with an output of its own."""
        place = self.folder / "copies" / manifest.savepoint_id
        copy = Copy(place / "ck", place / "out")
        copy.out.mkdir(parents=True)
        restore_savepoint(
            manifest,
            self.client.view.repository,
            lambda name: open_store(str(copy.own / name)),
            progress=lambda _: None,
        )
        return copy

    # --- the judge ---

    def rows(self) -> list[int]:
        """Return every row that the file sink has committed, by Spark's own log of its files."""
        log = self.out / "rows" / "_spark_metadata"
        if not log.exists():
            return []
        names = [path.name for path in log.iterdir() if not path.name.startswith(".")]
        compacted = max((int(n.partition(".")[0]) for n in names if n.endswith(".compact")), default=-1)
        wanted = [n for n in names if n.endswith(".compact") and int(n.partition(".")[0]) == compacted]
        wanted += [n for n in names if n.isdigit() and int(n) > compacted]
        entries = [json.loads(line) for n in wanted for line in (log / n).read_text().splitlines()[1:]]
        files = [Path(entry["path"].removeprefix("file://")) for entry in entries]
        return [json.loads(line)["n"] for file in files for line in file.read_text().splitlines()]

    def counted(self) -> tuple[int, int]:
        """Return how many records the newest batch has counted, and their sum."""
        return counted_in(self.out)

    def judge(self) -> None:
        """Wait until everything was read; then each row is counted and written exactly once."""
        whole = (self.produced, sum(range(self.produced)))
        wait_until(f"{whole} counted", lambda: self.counted()[0] >= self.produced)
        wait_until("all rows written", lambda: len(self.rows()) >= self.produced)
        assert self.counted() == whole
        assert sorted(self.rows()) == list(range(self.produced))

    def logs(self) -> str:
        files = [*self.folder.glob("plain-*.log"), *(self.folder / "logs").glob("*.log")]
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in files)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(20)
        for generation in self.client.view.board.generations():
            if self.client.view.run(generation).submit is not None:
                self.client.drivers.end_driver(generation)
