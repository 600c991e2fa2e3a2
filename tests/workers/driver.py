"""What stands for ``spark-submit`` and the launcher on a worker: the agent without Spark."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from airflow_flinkstyle.agent.launcher import _parse
from tests.bad_minutes.driver import DriverCommand, main
from tests.workers.clocks import set_clocks

FOLDER = "LAB_FOLDER"
"""Environment variable: the folder that all workers see."""


def command(argv: list[str]) -> DriverCommand:
    """Read the command line of a real submission."""
    arguments = _parse(argv[argv.index("--root") :])
    return DriverCommand(
        root=arguments.root,
        settings=None,
        job=arguments.job,
        claim_id=arguments.claim,
        digest=arguments.digest,
        generation=arguments.generation,
        submit=arguments.submit,
        host=socket.gethostname(),
        folder=Path(os.environ[FOLDER]),
        seed=f"{arguments.generation} {arguments.submit}",
        startup_s=0.1,
        pause_s=0.04,
    )


if __name__ == "__main__":
    set_clocks()
    main(command(sys.argv))
