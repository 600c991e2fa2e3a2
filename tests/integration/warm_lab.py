"""JVMs that run one driver of the agent's tests after the other: most of a driver's start is spent once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from testbed.differential.warm_jvm import WarmJvm, exit_code
from testbed.jvm import spark_options
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_OF_THE_JVM = frozenset({"spark.driver.extraClassPath", "spark.driver.extraJavaOptions"})
"""Settings that a JVM which runs already has, or had."""


class WarmDriver:
    """A driver in a JVM that ran others before it; for who waits for it or kills it, as any driver."""

    def __init__(self, jvm: WarmJvm, pid: int, log: Path) -> None:
        self._jvm, self._pid, self.log = jvm, pid, log

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def has_ended(self) -> bool:
        return not self._jvm.driver_lives(self._pid)

    def wait(self, timeout_s: float = 300) -> int:
        deadline_s = time.monotonic() + timeout_s
        while not self.has_ended:
            assert time.monotonic() < deadline_s, f"The driver did not end:\n{self.text[-4000:]}"
            time.sleep(0.05)
        code = exit_code(self._pid)
        assert code is not None
        return code

    def kill(self) -> None:
        """End JVM and Python at once, as a lost machine does; the next driver gets another JVM."""
        if not self.has_ended:
            self._jvm.kill()

    def close(self) -> None:
        """End it when nobody looks any more: its JVM is the next driver's."""
        self._jvm.end_drivers()


class WarmJvms:
    """As many as were needed at once, of each kind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kinds: dict[WarmJvm, tuple[str, str]] = {}
        """JVM -> what it was started with: options, which name the archive of its classes, and jars."""

    @property
    def jvm(self) -> WarmJvm:
        """One that runs no driver, with the connectors' jars; for ``WarmDeployment``."""
        return self._idle(spark_options(), spark_paths().conf["spark.driver.extraClassPath"])

    def launch(
        self, argv: Sequence[str], *, conf: Mapping[str, str], env: Mapping[str, str], log: Path
    ) -> WarmDriver:
        jvm = self._idle(conf["spark.driver.extraJavaOptions"], conf["spark.driver.extraClassPath"])
        settings = {name: value for name, value in conf.items() if name not in _OF_THE_JVM}
        settings |= {"spark.submit.deployMode": "client", "spark.app.name": argv[0]}
        # Its default is below the folder that the JVM was started in, where other drivers' tables are.
        settings.setdefault("spark.sql.warehouse.dir", str(log.parent / "spark-warehouse"))
        pid = jvm.run(argv, conf=settings, env=env, cwd=log.parent, log=log)
        return WarmDriver(jvm, pid, log)

    def _idle(self, options: str, jars: str) -> WarmJvm:
        alike = (jvm for jvm, kind in self._kinds.items() if kind == (options, jars))
        if (found := next((jvm for jvm in alike if jvm.is_idle), None)) is None:
            folder = self._folder / f"jvm-{len(self._kinds)}"
            found = WarmJvm(folder, java_options=options, class_path=jars)
            self._kinds[found] = options, jars
        found.wait_ready()
        return found

    def end_drivers(self) -> None:
        """End what runs, when nobody looks any more: the JVMs are the next drivers'."""
        for jvm in self._kinds:
            jvm.end_drivers()

    def close(self) -> None:
        for jvm in self._kinds:
            jvm.kill()
