"""A JVM with Spark loaded that runs one Python driver after the other, each with a SparkContext of its own.

What a cold driver spends on starting Java, loading classes and importing PySpark is spent once. A driver
finds its JVM as under spark-submit: as its parent, with the settings of the submission as system properties
and a py4j server of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.protocol.process import process_started
from testbed import paths
from testbed.jvm import FORKS, QUICK
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ARCHIVE = paths.HOME / "cache" / "differential-classes.jsa"
"""Of classes; ``archive`` makes it. The test bed's own one serves another class path."""
_OPTIONS = " ".join(
    (*QUICK, FORKS, f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
)
_SUBREAPER = 36
_START_S = 120.0
_LINGER_S = 20.0
_LOOK_S = 0.02


class WarmJvm:
    """One JVM and the process that forks its drivers."""

    def __init__(self, folder: Path, *, java_options: str = _OPTIONS, class_path: str = "") -> None:
        """Launch it, with Delta's and the connectors' jars by default; ``wait_ready`` lets it run drivers."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._sockets = tempfile.mkdtemp(prefix="lane-")  # a socket's path must be short
        self._info = folder / "gateway"
        spark = spark_paths()
        jars = class_path or paths.class_path("delta") + ":" + spark.conf["spark.driver.extraClassPath"]
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "PYTHONPATH": str(paths.ROOT),
            **{name: os.environ[name] for name in ("TMPDIR", "JDK_JAVA_OPTIONS") if name in os.environ},
            **spark.env,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._info),
            "SPARK_CONNECT_MODE": "0",
        }
        argv = [str(spark.spark_submit), "--driver-memory", "700m", "--driver-class-path", jars]
        argv += ["--driver-java-options", java_options, "pyspark-shell"]
        with (folder / "jvm.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # our own command
                argv,
                env=env,
                stdin=subprocess.PIPE,  # the JVM ends when this process does
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_adopt_orphans,
                cwd=folder,
            )
        self._python = str(spark.python)
        self._gateway: Any = None
        self._server: Any = None
        self._set: set[str] = set()
        self._drivers: dict[int, str] = {}
        self.cpu_at_end_s: float | None = None
        """CPU time it had used when it was killed."""

    @property
    def pid(self) -> int:
        """Of the JVM."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the JVM runs."""
        return self._process.poll() is None

    @property
    def is_idle(self) -> bool:
        """Whether it can run a driver: none of its own lives."""
        return self.is_alive and not any(map(self.driver_lives, self._drivers))

    def wait_ready(self) -> None:
        """Connect to the JVM and start its zygote, once."""
        if self._gateway is not None:
            return
        # Spark brings it, as for its own scripts: Airflow's environment has none.
        sys.path.extend(str(bundled) for bundled in spark_paths().spark_home.glob("python/lib/py4j-*.zip"))
        from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

        self._until(self._info.exists, "its gateway")
        with self._info.open("rb") as info:
            port = struct.unpack("!i", info.read(4))[0]
            secret = info.read(struct.unpack("!i", info.read(4))[0]).decode()
        self._gateway = ClientServer(
            java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )
        self._start_zygote()

    def _start_zygote(self) -> None:
        jvm = self._gateway.jvm
        argv = [self._python, "-u", "-m", "testbed.differential.zygote", f"{self._sockets}/z"]
        array = self._gateway.new_array(jvm.java.lang.String, len(argv))
        for place, part in enumerate(argv):
            array[place] = part
        builder = jvm.java.lang.ProcessBuilder(array)
        builder.redirectErrorStream(True)
        log = jvm.java.io.File(str(self.folder / "zygote.log"))
        builder.redirectOutput(jvm.java.lang.ProcessBuilder.Redirect.appendTo(log))
        builder.start()
        self._until(Path(f"{self._sockets}/z").exists, "its zygote")

    def run(
        self, argv: Sequence[str], *, conf: Mapping[str, str], env: Mapping[str, str], cwd: Path, log: Path
    ) -> int:
        """Start ``python argv...`` as a driver of this JVM; returns its pid at once."""
        until_s = time.monotonic() + _LINGER_S
        while any(map(self.driver_lives, self._drivers)) and time.monotonic() < until_s:
            time.sleep(_LOOK_S)  # it has said its last words, and has yet to leave
        self.clean()
        jvm = self._gateway.jvm
        for name, value in conf.items():
            jvm.java.lang.System.setProperty(name, value)
        self._set = set(conf)
        self._server = jvm.org.apache.spark.api.python.Py4JServer(jvm.org.apache.spark.SparkConf())
        self._server.start()
        own = {
            "PYSPARK_GATEWAY_PORT": str(self._server.getListeningPort()),
            "PYSPARK_GATEWAY_SECRET": self._server.secret(),
            "PYTHONHASHSEED": "0",
        }
        request = {"argv": list(argv), "env": {**env, **own}, "cwd": str(cwd), "log": str(log)}
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(f"{self._sockets}/z")
            with client.makefile("rw") as lines:
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                pid = int(lines.readline())
        self._drivers[pid] = process_started(pid) or "ended"
        return pid

    def driver_lives(self, pid: int) -> bool:
        """Return whether a driver that ``run`` started has not ended."""
        return process_started(pid) == self._drivers.get(pid)

    def clean(self) -> None:
        """Take away what the last driver left in the JVM."""
        self.wait_ready()
        jvm = self._gateway.jvm
        active = _scala_object(jvm.org.apache.spark, "SparkContext").getActive()
        if active.isDefined():
            active.get().stop()
        sessions = _scala_object(jvm.org.apache.spark.sql.classic, "SparkSession")
        sessions.clearActiveSession()
        sessions.clearDefaultSession()
        if self._server is not None:
            self._server.shutdown()
            self._server = None
        for name in self._set:
            jvm.java.lang.System.clearProperty(name)
        self._set = set()

    def cpu_s(self) -> float:
        """Return the CPU time of the JVM, its Python workers and its drivers so far."""
        if self.cpu_at_end_s is not None:
            return self.cpu_at_end_s
        return _cpu_s(self.pid) + sum(_cpu_s(pid) for pid in self._drivers)

    def end(self) -> None:
        """Let the JVM end in order."""
        self.clean()
        assert self._process.stdin is not None  # noqa: S101  # for mypy
        self._process.stdin.close()
        self._process.wait(_START_S)

    def end_drivers(self) -> None:
        """End the Python of its drivers at once; the next driver finds the JVM without their queries."""
        self._kill_drivers()
        self._wait_for_drivers()

    def _kill_drivers(self) -> None:
        for pid in self._drivers:
            if self.driver_lives(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(os.getpgid(pid), signal.SIGKILL)

    def _wait_for_drivers(self) -> None:
        while any(map(self.driver_lives, self._drivers)):
            time.sleep(_LOOK_S)

    def kill(self) -> None:
        """End the JVM and its drivers at once."""
        self._kill_drivers()
        self.cpu_at_end_s = self.cpu_s()
        if self._gateway is not None:  # else py4j tells the dead JVM of every object that Python lets go
            self._gateway._gateway_client.is_connected = False  # noqa: SLF001
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        shutil.rmtree(self._sockets, ignore_errors=True)
        self._wait_for_drivers()

    def _until(self, check: Any, what: str) -> None:  # noqa: ANN401  # a callable
        until_s = time.monotonic() + _START_S
        while not check():
            if not self.is_alive or time.monotonic() > until_s:
                raise RuntimeError(f"The JVM did not bring up {what}; its log is in {self.folder}.")
            time.sleep(_LOOK_S)


def _cpu_s(pid: int) -> float:
    """Return what a process and the children it has waited for have used; a zombie still tells."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def exit_code(pid: int) -> int | None:
    """Return how a driver ended: its JVM never asks, so the answer still stands there."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    status = int(fields[-1])
    return os.waitstatus_to_exitcode(status) if fields[0] in "ZX" else None


def _scala_object(package: Any, name: str) -> Any:  # noqa: ANN401  # py4j's
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _adopt_orphans() -> None:
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
