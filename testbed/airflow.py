"""Airflow in a folder of its own: SQLite, four tasks at once, everybody is an admin."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from testbed import paths
from testbed.airflow_api import AirflowApi
from testbed.chaos_processes import parent_of
from testbed.ports import free_port
from testbed.process import Service
from testbed.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CALLERS_OWN = ("AIRFLOW", "VIRTUAL_ENV", "PYTHON")
"""Prefixes of environment variables that must not leak from the caller into Airflow."""


class Airflow:
    """Airflow with API server, scheduler, DAG processor and triggerer."""

    def __init__(
        self,
        folder: Path,
        dags_folder: Path,
        *,
        connections: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        parallelism: int = 4,
        all_admins: bool = True,
        again_s: float = 1.0,
    ) -> None:
        """Describe an Airflow.

        Args:
            folder: Becomes ``AIRFLOW_HOME``.
            dags_folder: Where the DAG files are.
            connections: Connection id to URI or JSON.
            env: Further environment variables of Airflow and its tasks.
            parallelism: How many tasks run at once; each costs memory.
            all_admins: False turns authentication on, to test it.
            again_s: A part that has ended is started again after so many seconds.
        """
        self.port, tasks_port = free_port(), free_port()
        self.folder = folder
        self.api = AirflowApi(self.base_url, lambda: self.service.log_text())
        settings = {
            "core__dags_folder": str(dags_folder),
            "core__load_examples": "False",
            "core__parallelism": str(parallelism),
            "core__simple_auth_manager_all_admins": str(all_admins),
            "api__host": "127.0.0.1",
            "api__port": str(self.port),
            "api__base_url": self.base_url,
            "core__execution_api_server_url": f"http://127.0.0.1:{tasks_port}/execution/",
            # With SQLite's own 5 s the scheduler dies of a locked database on a busy machine.
            "database__sql_alchemy_conn": f"sqlite:///{folder / 'airflow.db'}?timeout=60",
            "scheduler__scheduler_idle_sleep_time": "0.2",
            # The first call makes the API server build its routes: seconds of work, and more than
            # the default of 5 s on a busy machine, where it fails the task.
            "workers__execution_api_timeout": "60",
            "logging__worker_log_server_port": str(free_port()),
            "logging__trigger_log_server_port": str(free_port()),
            "usage_data_collection__enabled": "False",
        }
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(_CALLERS_OWN)}
        self.env = {
            **inherited,
            "PATH": f"{paths.VENV_AIRFLOW / 'bin'}:{os.environ.get('PATH', '')}",
            "JAVA_HOME": str(paths.java_home()),
            "AIRFLOW_HOME": str(folder),
            **{f"AIRFLOW__{key.upper()}": value for key, value in settings.items()},
            **{f"AIRFLOW_CONN_{key.upper()}": value for key, value in (connections or {}).items()},
            **(env or {}),
        }
        airflow = paths.VENV_AIRFLOW / "bin" / "airflow"
        keeper = Path(__file__).with_name("airflow_parts.py")
        self.service = Service(
            "Airflow",
            (sys.executable, keeper, airflow, folder, str(again_s), str(tasks_port)),
            log_file=folder / "airflow.log",
            ready=self.api.is_healthy,
            ready_timeout_s=2 * PATIENCE_S,
            env=self.env,
            cwd=folder,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def base_url(self) -> str:
        """Address of UI and API."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start all parts and wait until each reports healthy."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start without waiting."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.service.launch()

    def wait_ready(self) -> None:
        """Return once every part reports healthy; end Airflow if it does not."""
        try:
            self.service.wait_ready()
        except BaseException:
            self.service.stop(grace_s=1)
            raise

    def stop(self) -> None:
        """Stop every part and every task; detached drivers live on."""
        self.service.stop()

    def kill(self) -> None:
        """End it with SIGKILL, as a machine that loses power would; detached drivers live on."""
        self.service.kill()

    def kill_part(self, part: str) -> None:
        """End a part of ``airflow_parts`` with SIGKILL; ``again_s`` brings it back.

        The scheduler's workers live on, and so do their tasks, as those of other executors do.
        """
        main = int((self.folder / "parts" / part).read_text())
        for pid in (main, *_started_by(main, but=b"LocalExecutor")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _started_by(parent: int, *, but: bytes) -> Iterator[int]:
    """Yield the processes below one, but those whose command line says so, and what is below them."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if parent_of(int(folder.name)) == parent and but not in (folder / "cmdline").read_bytes():
                yield from _started_by(int(folder.name), but=but)
                yield int(folder.name)
