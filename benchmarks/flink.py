"""A Flink cluster of this machine: one job manager, one task manager, one SQL job with native savepoints."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from testbed import paths
from testbed.drivers import SPARK_PYTHON
from testbed.ports import free_port
from testbed.process import Service

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SLOTS = 2
SUBMIT = paths.ROOT / "benchmarks" / "jobs" / "flink_submit.py"
TIMEOUT_S = 300.0
_OPENED = ("lang", "lang.reflect", "net", "io", "nio", "text", "time", "util", "util.concurrent")
_SETTINGS = {
    "jobmanager.rpc.address": "127.0.0.1",
    "jobmanager.bind-host": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
    "taskmanager.host": "127.0.0.1",
    "taskmanager.numberOfTaskSlots": str(SLOTS),
    "parallelism.default": str(SLOTS),
    "jobmanager.memory.process.size": "1024m",
    "taskmanager.memory.process.size": "2048m",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.storage": "filesystem",
    # Statistics are kept this long before they are looked up anew.
    "web.refresh-interval": "100",
    "metrics.fetcher.update-interval": "500",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlinkSavepoint:
    """One savepoint as the engine reports it."""

    reported_s: float
    """``end_to_end_duration``: from the trigger to the last task's acknowledgement."""
    answered_s: float
    """From the REST request until the status says completed."""
    size_bytes: int
    """``state_size``."""


class FlinkCluster:
    """Job manager and task manager as child processes; ends with the context."""

    def __init__(
        self, folder: Path, *, jars: Sequence[Path] = (), settings: Mapping[str, str] | None = None
    ) -> None:
        """Prepare; ``jars`` are connectors beside Flink's own, ``settings`` those of cluster and jobs."""
        self._jars = "".join(f":{jar}" for jar in jars)
        self._conf, self._checkpoints = folder / "conf", folder / "checkpoints"
        self.printed = folder / "task-manager.log"
        """What the tasks' sinks of kind ``print`` have written, among the task manager's own words."""
        self._conf.mkdir(parents=True)
        self._port = free_port()
        all_settings = {
            **_SETTINGS,
            **(settings or {}),
            "jobmanager.rpc.port": str(free_port()),
            "rest.port": str(self._port),
            "execution.checkpointing.dir": self._checkpoints.as_uri(),
            "io.tmp.dirs": str(folder / "tmp"),
        }
        (self._conf / "config.yaml").write_text("".join(f"{k}: {v}\n" for k, v in all_settings.items()))
        runtime = "org.apache.flink.runtime"
        self._manager = Service(
            "Flink job manager",
            [
                *self._java("-Xmx512m"),
                f"{runtime}.entrypoint.StandaloneSessionClusterEntrypoint",
                *("--configDir", self._conf),
            ],
            log_file=folder / "job-manager.log",
            ready=self._answers,
        )
        jvm, dynamic = self._memory()
        worker = f"{runtime}.taskexecutor.TaskManagerRunner"
        self._worker = Service(
            "Flink task manager",
            [*self._java(*jvm), worker, "--configDir", str(self._conf), *dynamic],
            log_file=self.printed,
            ready=lambda: bool(self._get("/overview")["slots-total"] == SLOTS),
        )

    def __enter__(self) -> Self:
        """Start both and wait until the slots are there."""
        self._manager.start()
        try:
            self._worker.start()
        except BaseException:
            self._manager.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End both."""
        self._worker.stop()
        self._manager.stop()

    def crash_worker(self) -> None:
        """Kill the task manager, and start another at once."""
        self._worker.kill()
        self._worker.launch()

    def crash_manager(self) -> None:
        """Kill the job manager, and start another at once; returns once that answers. Its jobs are gone."""
        self._manager.kill()
        self._manager.start()

    def submit(self, statements: Sequence[str], options: Mapping[str, str] | None = None) -> str:
        """Run SQL statements, the last of which starts a job; returns its id.

        Args:
            statements: What the client runs, in order.
            options: Of the job, beside the cluster's.
        """
        settings = {
            "java": self._java("-Xmx512m"),
            "conf": str(self._conf),
            "statements": list(statements),
            "options": dict(options or {}),
        }
        done = subprocess.run(  # noqa: S603  (our own program)
            [str(SPARK_PYTHON), str(SUBMIT), json.dumps(settings)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode != 0:
            raise RuntimeError(f"Flink's job could not be submitted:\n{done.stderr[:6000]}")
        return done.stdout.split()[-1]

    def records_read(self, job: str) -> int:
        """Return how many records the job's tasks have read from one another."""
        vertices = self._get(f"/jobs/{job}")["vertices"]
        return max(int(vertex["metrics"]["read-records"]) for vertex in vertices)

    def run_to_end(self, job: str) -> float:
        """Wait until a bounded job has finished; returns the seconds that it ran.

        From the start of its tasks to its end as Flink notes them: with its last checkpoint.
        """
        deadline_s = time.monotonic() + TIMEOUT_S
        while (told := self._get(f"/jobs/{job}"))["state"] != "FINISHED":
            if told["state"] == "FAILED" or time.monotonic() > deadline_s:
                raise RuntimeError(f"Flink's job was expected to finish, found it {told['state']}")
            time.sleep(0.1)
        begun_ms = min(vertex["start-time"] for vertex in told["vertices"])
        return float(told["timestamps"]["FINISHED"] - begun_ms) / 1000

    def runs(self, job: str) -> bool:
        """Return whether all tasks of a job run."""
        return all(vertex["status"] == "RUNNING" for vertex in self._get(f"/jobs/{job}")["vertices"])

    def newest_checkpoint(self, job: str) -> str:
        """Return where the newest one is that was completed; also of a job whose manager is gone."""
        place = self._checkpoints / job
        numbers = [int(done.parent.name.removeprefix("chk-")) for done in place.glob("chk-*/_metadata")]
        return (place / f"chk-{max(numbers)}").as_uri()

    def savepoint(self, job: str, folder: Path) -> FlinkSavepoint:
        """Take a native savepoint of the running job into a folder."""
        began_s = time.monotonic()
        asked = {"target-directory": folder.as_uri(), "formatType": "NATIVE", "cancel-job": False}
        self._completed(job, self._post(f"/jobs/{job}/savepoints", asked)["request-id"])
        answered_s = time.monotonic() - began_s
        time.sleep(0.3)  # the statistics are cached
        newest = self._get(f"/jobs/{job}/checkpoints")["latest"]["savepoint"]
        return FlinkSavepoint(
            reported_s=newest["end_to_end_duration"] / 1000,
            answered_s=answered_s,
            size_bytes=newest["state_size"],
        )

    def stop(self, job: str, folder: Path) -> str:
        """Stop a job with a native savepoint, as ``flink stop`` does; returns where the savepoint is."""
        asked = {"targetDirectory": folder.as_uri(), "formatType": "NATIVE", "drain": False}
        return self._completed(job, self._post(f"/jobs/{job}/stop", asked)["request-id"])

    def _completed(self, job: str, trigger: str) -> str:
        """Wait for a savepoint; returns where it is."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._get(f"/jobs/{job}/savepoints/{trigger}")
            if answer["status"]["id"] == "COMPLETED":
                break
            if time.monotonic() > deadline_s:
                raise TimeoutError("Flink's savepoint did not complete")
            time.sleep(0.02)
        if "location" not in answer["operation"]:
            raise RuntimeError(f"Flink's savepoint failed: {answer}")
        return str(answer["operation"]["location"])

    def _java(self, *options: str) -> list[str]:
        opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
        home = _flink_home()
        # Of opt only the gateway is wanted, but no other jar there gets in its way.
        return [
            str(paths.java()),
            "-XX:+UseSerialGC",
            *options,
            *opened,
            "-cp",
            f"{home}/lib/*:{home}/opt/*{self._jars}",
        ]

    def _memory(self) -> tuple[list[str], list[str]]:
        """Let Flink divide the task manager's memory, as its own start script does."""
        home = _flink_home()
        command = [str(paths.java()), "-cp", f"{home}/bin/bash-java-utils.jar:{home}/lib/*"]
        tool = "org.apache.flink.runtime.util.bash.BashJavaUtils"
        done = subprocess.run(  # noqa: S603  (Flink's own program)
            [*command, tool, "GET_TM_RESOURCE_PARAMS", "--configDir", str(self._conf)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        lines = [line.split(":", 1)[1] for line in done.stdout.splitlines() if "EXEC_RESULT:" in line]
        jvm, dynamic = lines
        return jvm.split(), dynamic.split()

    def _answers(self) -> bool:
        try:
            return "slots-total" in self._get("/overview")
        except OSError:
            return False

    def _get(self, path: str) -> Any:  # noqa: ANN401  (JSON)
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=10) as answer:
            return json.load(answer)

    def _post(self, path: str, body: dict[str, object]) -> Any:  # noqa: ANN401  (JSON)
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310  (this machine)
            return json.load(answer)


def _flink_home() -> Path:
    found = sorted(paths.VENV_BENCH.glob("lib/python3*/site-packages/pyflink"))
    if not found:
        raise FileNotFoundError(f"Flink was expected in {paths.VENV_BENCH}, found none. Run `make bench`.")
    return found[-1]
