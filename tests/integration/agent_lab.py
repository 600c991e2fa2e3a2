"""Real drivers under the agent, started with spark-submit, and a caller's side of the protocol."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_flinkstyle import agent
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.records import Claim, Request, TakeoverOrder
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.types import Generation, Incarnation
from testbed import paths
from testbed.jvm import spark_options
from testbed.spark import spark_paths
from testbed.waiting import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.protocol.records import Command, Current, End, Heartbeat
    from tests.integration.warm_lab import WarmDriver, WarmJvms

T = TypeVar("T")
LAUNCHER = Path(agent.__file__).parent / "launcher.py"

COUNT_JOB = """
import json, sys, time
from pyspark.sql import SparkSession, functions as F
out = sys.argv[1]
spark = SparkSession.builder.appName("count").getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
keys = rows.groupBy((F.col("value") % 7).alias("k"))
counts = keys.agg(F.count("*").alias("n"), F.max("value").alias("top"))
def note(batch, batch_id):
    total = batch.agg(F.sum("n").alias("n"), F.max("top").alias("top")).first()
    with open(out, "a") as f:
        f.write(json.dumps({"batch": batch_id, "n": total.n, "top": total.top}) + "\\n")
q = (counts.writeStream.queryName("counts").outputMode("complete").foreachBatch(note)
     .trigger(processingTime="1 second").option("checkpointLocation", "/nonexistent/ignored").start())
q.awaitTermination()
print("SCRIPT WENT ON")
"""
"""Counts numbered rows: every batch counts its highest number plus one, or rows were lost or doubled."""


class Driver:
    """One spark-submit process."""

    def __init__(self, argv: list[str], env: Mapping[str, str], log: Path, cwd: Path) -> None:
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=cwd,
            )

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def python_pid(self) -> int:
        """Return the agent: the child that runs the launcher. Hadoop has the JVM start others, like chmod."""
        for task in Path(f"/proc/{self.process.pid}/task").glob("*/children"):
            for pid in task.read_text().split():
                with contextlib.suppress(OSError):
                    if str(LAUNCHER).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                        return int(pid)
        raise AssertionError(f"The driver has no agent:\n{self.text[-4000:]}")

    def wait(self, timeout_s: float = 300) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"The driver did not end:\n{self.text[-4000:]}") from None

    def kill(self) -> None:
        """End JVM and Python at once, as a lost machine does."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(20)

    def close(self) -> None:
        self.kill()


class Lab:
    """One job in a folder of its own, and its callers."""

    def __init__(
        self,
        folder: Path,
        *,
        job: str = "job",
        lease_s: float = 6.0,
        root: Path | None = None,
        patience_s: float = 300.0,
        warm: WarmJvms | None = None,
    ) -> None:
        """Describe it; with ``warm`` its drivers run in JVMs that ran others, else each is a spark-submit."""
        self.folder, self.job, self.lease_s, self.patience_s = folder, job, lease_s, patience_s
        folder.mkdir(parents=True, exist_ok=True)
        self.root = root or folder / "root"
        store = open_store(str(self.root))
        self.board, self.repository = JobBoard(store, job), SavepointRepository(store, job)
        self.out = folder / "out.jsonl"
        self.drivers: list[Driver | WarmDriver] = []
        self._warm = warm
        self.conf: dict[str, str] = {}
        self.env: dict[str, str] = {}
        self.spark = paths.SPARK
        """Minor version of the Spark that the next driver runs on."""
        self._asked = 0

    def script(self, text: str, name: str = "app.py") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def claim(self, generation: int, *, follows: int | None = None, **changes: Any) -> str:
        location = changes.pop("checkpoint_location", str(self.folder / f"checkpoints-{generation}"))
        values: dict[str, Any] = {
            "claim_key": f"test-{generation}",
            "follows": Generation(follows) if follows else None,
            "checkpoint_location": location,
            "prepare_savepoint_id": None,
            "overrides": (),
            "lease_s": self.lease_s,
            "launch": {},
            "claimed_at_ms": 0,
        }
        self.board.create_claim(Generation(generation), Claim(**{**values, **changes}))
        return location

    def order_takeover(self, generation: int, **changes: Any) -> None:
        values: dict[str, Any] = {
            "savepoint_id": None, "closed_at": None, "expected": {},
            "parent": BEGINNING,
        }  # fmt: skip
        self.board.create_takeover_order(Generation(generation), TakeoverOrder(**{**values, **changes}))

    def launch(self, generation: int, script: Path, *args: str) -> Driver | WarmDriver:
        spark = spark_paths(java_options=spark_options(self.spark), minor=self.spark)
        conf = {
            **spark.conf,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "600m",
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
            **self.conf,
        }
        claim = self.board.claim(Generation(generation))
        agent = [str(LAUNCHER), "--root", str(self.root), "--job", self.job]
        agent += ["--claim", claim.claim_id if claim else "none", "--generation", str(generation)]
        agent += ["--", str(script), *(args or (str(self.out),))]
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), **spark.env, **self.env}
        log = self.folder / f"driver-{len(self.drivers)}.log"
        driver: Driver | WarmDriver
        if self._warm is not None:
            driver = self._warm.launch(agent, conf={"spark.master": "local[2]", **conf}, env=env, log=log)
        else:
            settings = [part for item in conf.items() for part in ("--conf", "=".join(item))]
            argv = [str(spark.spark_submit), "--master", "local[2]", *settings, *agent]
            driver = Driver(argv, env, log, self.folder)
        self.drivers.append(driver)
        return driver

    def start(self, generation: int, script: Path, *args: str, **order: Any) -> Driver | WarmDriver:
        self.claim(generation, follows=generation - 1 or None)
        self.order_takeover(generation, **order)
        return self.launch(generation, script, *args)

    def launch_standby(self, generation: int, script: Path, *args: str) -> Driver | WarmDriver:
        self.claim(generation, follows=generation - 1 or None)
        return self.launch(generation, script, *args)

    def close(self) -> None:
        for driver in self.drivers:
            driver.close()

    # --- what callers see ---

    def heartbeat(self, generation: int) -> Heartbeat | None:
        slot = self.board.heartbeat(Generation(generation))
        return slot.value if slot else None

    def current(self) -> Current | None:
        slot = self.board.current()
        return slot.value if slot else None

    def until(self, what: str, check: Callable[[], T], timeout_s: float | None = None) -> T:
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < scaled(timeout_s or self.patience_s):
            if found := check():
                return found
            time.sleep(0.1)
        logs = "\n".join(f"--- {d.log.name}\n{d.text[-3000:]}" for d in self.drivers)
        raise AssertionError(f"Never: {what}\n{logs}")

    def until_state(self, generation: int, state: str, *, incarnation: int | None = None) -> Heartbeat:
        def check() -> Heartbeat | None:
            beat = self.heartbeat(generation)
            matches = beat is not None and beat.state == state
            return beat if matches and incarnation in (None, beat.incarnation) else None  # type: ignore[union-attr]

        return self.until(f"generation {generation} {state}", check)

    def until_batch(
        self,
        generation: int,
        query: str = "counts",
        *,
        above: int = -1,
        driver: Driver | WarmDriver | None = None,
    ) -> int:
        """Wait for a batch; a driver that is named must not end meanwhile."""

        def check() -> list[int]:
            assert driver is None or not driver.has_ended, driver.text[-8000:]
            beat = self.heartbeat(generation)
            batch = beat.batches().get(query, -1) if beat is not None and beat.state == "running" else -1
            return [batch] if batch > above else []

        return self.until(f"a batch above {above} of generation {generation}", check)[0]

    def ask(self, generation: int, command: Command, *, incarnation: int = 1, **more: Any) -> Request:
        self._asked += 1
        request = Request(
            request_id=f"rq-{self._asked}",
            incarnation=Incarnation(incarnation),
            command=command,
            state="sent",
            savepoint_id=f"sp-{self._asked}" if "savepoint" in command else None,
            sent_at_ms=0,
            **more,
        )
        slot = self.board.request(Generation(generation))
        self.board.put_request(Generation(generation), request, seen=slot)
        return request

    def end_of(self, generation: int, request: Request) -> End:
        def check() -> End | None:
            return self.board.end(Generation(generation), request.request_id)

        return self.until(f"the end of {request.command}", check)

    def begun(self, generation: int) -> list[str]:
        """Return the queries of which anything is in a generation's own checkpoint location."""
        return list(open_store(str(self.folder / f"checkpoints-{generation}")).folders())

    def rows(self) -> list[dict[str, int]]:
        """Return what the job wrote, batch by batch."""
        return [json.loads(line) for line in self.out.read_text().splitlines()] if self.out.exists() else []


def logs_of(location: str, query: str = "counts") -> tuple[set[int], set[int]]:
    """Return the batches in the offset log and in the commit log of a checkpoint."""

    def batches(log: str) -> set[int]:
        folder = Path(location) / query / log
        return {int(p.name) for p in folder.iterdir() if p.name.isdigit()} if folder.exists() else set()

    return batches("offsets"), batches("commits")


def plain_submit(script: Path, *args: str) -> None:
    """Run a script as its author would, without the agent."""
    spark = spark_paths(java_options=spark_options())
    argv = [str(spark.spark_submit), "--master", "local[2]"]
    for name, value in {
        **spark.conf,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        argv += ["--conf", f"{name}={value}"]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(script.parent), **spark.env}
    done = subprocess.run(
        [*argv, str(script), *args],
        env=env,
        cwd=script.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
