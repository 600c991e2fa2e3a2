"""Forks Python drivers under a JVM that already runs; started by ``WarmJvm``, in Spark's environment.

PySpark and the agent are imported once, here. Each request on the socket, a JSON line with ``argv``, ``env``,
``cwd`` and ``log``, is answered with the pid of a process that runs ``argv`` as ``python argv...`` would. The
JVM adopts it (it is a subreaper): the agent finds the JVM as its parent, as under spark-submit.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_MODULES = (
    "pyspark.sql",
    "pyspark.sql.streaming",
    "pyspark.sql.functions",
    "pyspark.testing",  # with pandas and pyarrow: a session's first call imports them
    "pandas",
    "pyarrow.compute",
    "airflow_flinkstyle.agent.core.runtime",
    "airflow_flinkstyle.agent.spark.wrapping",
    "airflow_flinkstyle.agent.spark.signals",
    "airflow_flinkstyle.storage.local",
    "airflow_flinkstyle.savepoint.capture.take",
    "airflow_flinkstyle.savepoint.files.restore",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A program to become."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    log: str


def main(path: str) -> None:
    """Serve requests until the socket's file is gone or the JVM has ended."""
    for name in _MODULES:
        __import__(name)
    jvm = os.getppid()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(4)
        server.settimeout(1.0)
        while os.getppid() == jvm:
            try:
                client, _ = server.accept()
            except TimeoutError:
                continue
            request = _serve(client)
            if request is not None:
                server.close()
                _become(request)
                return


def _serve(client: socket.socket) -> Request | None:
    """Answer one request; returns it in the new process only."""
    with client, client.makefile("rw") as lines:
        client.settimeout(None)
        request = Request(**json.loads(lines.readline()))
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.setsid()
            between = os.getpid()
            driver = os.fork()
            if driver != 0:
                os.write(tell, str(driver).encode())
                os._exit(0)  # the driver is an orphan now, and the JVM's
            os.close(told)
            os.close(tell)
            while os.getppid() == between:
                time.sleep(0.001)  # the agent would take it for its JVM, which then dies
            return request
        os.waitpid(child, 0)
        os.close(tell)
        lines.write(os.read(told, 32).decode() + "\n")
        os.close(told)
        lines.flush()
        return None


def _become(request: Request) -> None:
    """Turn into the program that was asked for; ends as Python itself ends."""
    log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.env)
    sys.argv = request.argv
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1])
