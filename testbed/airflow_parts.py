"""Airflow's parts, each a process that is started again some seconds after it has ended, as systemd does.

Run by ``testbed.airflow.Airflow`` with the command ``airflow``, its home and the seconds; each part's process
id is in the home's folder ``parts``.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

PARTS = ("scheduler", "dag-processor", "api-server", "triggerer")


def main() -> None:
    """Prepare the database and keep every part running, until this process is ended."""
    airflow, home, again_s = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    subprocess.run([airflow, "db", "migrate"], check=True)  # noqa: S603  # our own command
    with closing(sqlite3.connect(home / "airflow.db")) as database:
        database.execute("PRAGMA journal_mode=WAL")  # who reads does not wait for who writes
    (home / "parts").mkdir(exist_ok=True)
    for part in PARTS:
        threading.Thread(target=_keep, args=(airflow, part, home / "parts" / part, again_s)).start()


def _keep(airflow: str, part: str, told: Path, again_s: float) -> None:
    while True:
        process = subprocess.Popen([airflow, part])  # noqa: S603  # as above
        told.write_text(str(process.pid))
        process.wait()
        time.sleep(again_s)


if __name__ == "__main__":
    main()
