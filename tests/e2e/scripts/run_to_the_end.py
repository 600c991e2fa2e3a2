"""Run the orders job, unmodified, from one checkpoint after another in one session, each to the topic's end.

``run_to_the_end.py ORDERS_JOB SETTINGS_JSON``; settings: ``conf``, ``args`` and ``checkpoints``.
"""

from __future__ import annotations

import json
import runpy
import sys

from pyspark.sql import SparkSession


def main() -> None:
    """Start each checkpoint; the first that fails ends it."""
    job, settings = sys.argv[1], json.loads(sys.argv[2])
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings["conf"].items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    for checkpoint in settings["checkpoints"]:
        sys.argv = [
            job,
            *settings["args"],
            *("--checkpoint", checkpoint, "--output", f"{checkpoint}-output", "--available-now"),
        ]
        runpy.run_path(job, run_name="__main__")
    session.stop()


if __name__ == "__main__":
    main()
