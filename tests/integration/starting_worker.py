"""``starting_worker.py FOLDER UID``: a worker that starts a driver, says what came of it, and lives on.

The driver is a shell here: what ends it is the same. Says JSON in ``FOLDER/said``: ``id`` or ``code`` and
``text``, and the pid of a process that has a session of its own and nothing else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.deployments.base import Submission
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment


def main(folder: Path, uid: int) -> None:
    """Start both, then wait to be stopped."""
    folder.mkdir()
    os.chown(folder, uid, uid)
    os.setgid(uid)
    os.setuid(uid)
    with_session = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    said: dict[str, object] = {"with_session": with_session.pid}
    accepted = os.environ.get("ACCEPTED") == "yes"
    try:
        said["id"] = dict(DetachedDeployment(may_end_with_starter=accepted).submit(_driver(folder)))
    except FlinkstyleError as error:
        said |= {"code": error.code, "text": str(error)}
    (folder / "saying").write_text(json.dumps(said))
    (folder / "saying").rename(folder / "said")
    time.sleep(1000)


def _driver(folder: Path) -> Submission:
    return Submission(
        argv=("/bin/sh", "-c", "sleep 1000; true"),
        marker=("--claim", "c1"),
        env={"PATH": "/usr/bin:/bin"},
        cwd=str(folder),
        log_path=str(folder / "job-000001.log"),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
