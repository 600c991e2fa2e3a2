"""Airflow's parts, each a process that is started again some seconds after it has ended, as systemd does.

Run by ``testbed.airflow.Airflow`` with the command ``airflow``, its home, the seconds and a port; each part's
process id is in the home's folder ``parts``. What tasks talk to has a process and that port of its own: next
to people's API a task's change may hold SQLite and wait for the event loop, in which Airflow notes what a
person asked for, and waits for SQLite.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

PARTS = {
    "scheduler": ("scheduler",),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer",),
    "api-server": ("api-server", "--apps", "core"),
    "execution-api": ("api-server", "--apps", "execution", "--port"),
}


def main() -> None:
    """Prepare the database and keep every part running, until this process is ended."""
    airflow, home, again_s, port = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    subprocess.run([airflow, "db", "migrate"], check=True)  # noqa: S603  # our own command
    with closing(sqlite3.connect(home / "airflow.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")  # who reads does not wait for who writes
    (home / "parts").mkdir(exist_ok=True)
    for part, words in PARTS.items():
        command = (airflow, *words, *([port] if words[-1] == "--port" else []))
        threading.Thread(target=_keep, args=(command, home / "parts" / part, again_s)).start()


def _keep(command: tuple[str, ...], told: Path, again_s: float) -> None:
    while True:
        process = subprocess.Popen(command)  # noqa: S603  # as above
        told.write_text(str(process.pid))
        process.wait()
        time.sleep(again_s)


if __name__ == "__main__":
    main()
