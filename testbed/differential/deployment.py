"""Drivers in warm JVMs, as a deployment of the package: its callers do with them what they do with others."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from airflow_flinkstyle.jobs.deployments.base import Alive, DriverState, Gone
from airflow_flinkstyle.jobs.packing import launcher_path
from testbed.differential.warm_jvm import WarmJvm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.deployments.base import Submission
    from airflow_flinkstyle.protocol.records import IncarnationRecord


class Jvms(Protocol):
    """Where drivers find a JVM."""

    @property
    def jvm(self) -> WarmJvm:
        """One for the next driver, once what runs in it has left."""


class Lane:
    """A warm JVM that runs one driver at a time, and one that takes its place when it dies."""

    def __init__(self, folder: Path) -> None:
        """Launch the first; it is not waited for."""
        self._folder, self._count = folder, 0
        self._spare: WarmJvm | None = None
        self._all: list[WarmJvm] = []
        self._jvm = self._launch()

    def _launch(self) -> WarmJvm:
        self._count += 1
        self._all.append(WarmJvm(self._folder / f"jvm-{self._count}"))
        return self._all[-1]

    def cpu_s(self) -> float:
        """Return the CPU time of all JVMs there were and of what ran in them."""
        return sum(jvm.cpu_s() for jvm in self._all)

    @property
    def jvm(self) -> WarmJvm:
        """The JVM that lives."""
        if not self._jvm.is_alive:
            self._jvm.kill()  # and what it left
            self._jvm = self._spare or self._launch()
            self._spare = None
            self._jvm.wait_ready()
        return self._jvm

    def expect_kill(self) -> None:
        """Launch the JVM that will take over."""
        if self._spare is None:
            self._spare = self._launch()

    def close(self) -> None:
        """End the JVMs."""
        for jvm in (self._jvm, self._spare):
            if jvm is not None:
                jvm.kill()


@dataclass(slots=True, kw_only=True)
class WarmDeployment:
    """Runs submissions in warm JVMs."""

    jvms: Jvms
    name: str = "warm"
    _where: dict[int, WarmJvm] = field(default_factory=dict)
    _newest: dict[tuple[str, ...], dict[str, str]] = field(default_factory=dict)
    """Native id of the newest driver of each generation, by what its command line is known by."""

    def require_able(self) -> None:
        """Start drivers anywhere: they live in JVMs that run already."""

    def submit(self, submission: Submission) -> Mapping[str, str]:
        """Start the driver: settings go where spark-submit puts them, arguments are the launcher's."""
        begin = submission.argv.index(launcher_path())
        before = list(submission.argv[1:begin])
        options = list(zip(before[::2], before[1::2], strict=True))
        conf = dict(value.split("=", 1) for name, value in options if name == "--conf")
        named = {"--master": "spark.master", "--name": "spark.app.name"}
        conf |= {named[name]: value for name, value in options if name in named}
        conf["spark.submit.deployMode"] = "client"
        log = Path(submission.log_path)
        log.parent.mkdir(parents=True, exist_ok=True)
        jvm = self.jvms.jvm
        argv = submission.argv[begin:]
        pid = jvm.run(argv, conf=conf, env=submission.env, cwd=Path(submission.cwd or "/"), log=log)
        self._where[pid] = jvm
        self._newest[submission.marker] = {"pid": str(pid), "log": str(log)}
        return self._newest[submission.marker]

    def find(self, submission: Submission) -> Mapping[str, str] | None:
        """Return the newest driver of the generation, if it lives: it may be one that was started again."""
        found = self._newest.get(submission.marker)
        return found if found is not None and self.state(found) == Alive() else None

    def native_id(self, record: IncarnationRecord) -> Mapping[str, str]:
        """Name the Python process: the JVM outlives its drivers."""
        return {"pid": str(record.pid), "log": ""}

    def state(self, native_id: Mapping[str, str]) -> DriverState:
        """Ask the operating system."""
        pid = int(native_id.get("pid", 0))
        return Alive() if pid in self._where and self._where[pid].driver_lives(pid) else Gone()

    def end(self, native_id: Mapping[str, str]) -> DriverState:
        """Kill Python and its JVM, as a lost machine does."""
        if self.state(native_id) == Alive():
            self._where[int(native_id["pid"])].kill()
        return Gone()

    def log_tail(self, native_id: Mapping[str, str], *, lines: int = 30) -> str:
        """Return the last lines of the log file."""
        path = Path(native_id["log"] or "/nonexistent")
        if not path.is_file():
            return ""
        with path.open(errors="replace") as text:
            return "".join(deque(text, maxlen=lines)).strip()
