"""JVMs that run one driver of the agent's tests after the other: most of a driver's start is spent once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from testbed.differential.warm_jvm import WarmJvm, exit_code

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_OF_THE_JVM = frozenset({"spark.jars", "spark.driver.extraClassPath", "spark.driver.extraJavaOptions"})
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


class WarmJvms:
    """As many as were needed at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._newest: dict[WarmJvm, WarmDriver | None] = {}
        """JVM -> the driver that runs in it, or ran last."""

    def launch(
        self, argv: Sequence[str], *, conf: Mapping[str, str], env: Mapping[str, str], log: Path
    ) -> WarmDriver:
        jvm = next(filter(self._is_free, self._newest), None) or self._start()
        jvm.wait_ready()
        settings = {name: value for name, value in conf.items() if name not in _OF_THE_JVM}
        settings |= {"spark.submit.deployMode": "client", "spark.app.name": argv[0]}
        pid = jvm.run(argv, conf=settings, env=env, cwd=log.parent, log=log)
        driver = self._newest[jvm] = WarmDriver(jvm, pid, log)
        return driver

    def _is_free(self, jvm: WarmJvm) -> bool:
        driver = self._newest[jvm]
        return jvm.is_alive and driver is not None and driver.has_ended

    def _start(self) -> WarmJvm:
        jvm = WarmJvm(self._folder / f"jvm-{len(self._newest)}")
        self._newest[jvm] = None
        return jvm

    def close(self) -> None:
        for jvm in self._newest:
            jvm.kill()
