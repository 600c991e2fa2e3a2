"""The archives from which JVMs take their classes in tests: ``python3 -m tools.class_archive``."""

from __future__ import annotations

import sys
import time

from testbed.jvm import PROGRAMS, archive
from tools.common import JARS, JAVA_HOME_FILE, ROOT, VENV_AIRFLOW, VENV_SPARK, Stamp, run, say


def main() -> int:
    """Make them unless they are there."""
    ensure()
    return 0


def ensure() -> None:
    """Make them unless they are there, of this Java and these jars."""
    jars = sorted([*JARS.glob("*/*.jar"), *VENV_SPARK.glob("lib/python3*/site-packages/pyspark/jars/*.jar")])
    seen = [f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars]
    stamp = Stamp("class-archive", JAVA_HOME_FILE, *seen)
    archives = [archive(program) for program in PROGRAMS]
    if stamp.is_current and all(file.exists() for file in archives):
        return
    say("set-up: classes of Spark, Kafka and MirrorMaker in archives ...")
    started_s = time.monotonic()
    for file in archives:
        file.unlink(missing_ok=True)
    python = VENV_AIRFLOW / "bin" / "python"
    run("class archive", [python, ROOT / "testbed" / "guard.py", "--", python, "-m", "testbed.class_archive"])
    stamp.set()
    say(f"set-up: class archives done in {time.monotonic() - started_s:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
