"""`make lock`: resolve the lock files anew from pyproject.toml, locks/*.in and locks/jars.in."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools import jars
from tools.common import (
    BENCH_JARS,
    HOME,
    JAVA_HOME_FILE,
    KAFKA_VERSIONS,
    LOCKS,
    ROOT,
    TABLES,
    remove,
    run,
    say,
    sha256_of,
)
from tools.setup import UV

OLDER_PYTHONS = {"spark-3.5": "3.10", "build-3.10": "3.10"}
"""Locks that are for an older Python, too: drivers are tested on it."""
BESIDE_SPARK = ("s3a", "spark-kafka")
"""Sets that run inside Spark: what Spark ships is left out."""


def main() -> int:
    """Write every lock file."""
    compile_requirements("build", LOCKS / "build.in")
    compile_requirements("build-3.10", LOCKS / "build.in")
    compile_requirements("bootstrap", LOCKS / "bootstrap.in")
    compile_requirements("go", LOCKS / "go.in")
    project = ROOT / "pyproject.toml"
    same_tools = ("-c", LOCKS / "build.txt")
    airflow_side = ("--extra", "airflow", "--extra", "dev")
    spark_side = (LOCKS / "beside-spark.in", "--extra", "test")
    compile_requirements("airflow", project, *airflow_side, *same_tools)
    for own in sorted(LOCKS.glob("spark*.in")):  # the usual Spark, and one for each other version
        compile_requirements(own.stem, project, own, *spark_side, *same_tools)
    compile_requirements("bench", LOCKS / "bench.in", *same_tools)
    compile_requirements("docs", LOCKS / "docs.in", *same_tools)
    compile_requirements("kerberos", LOCKS / "kerberos.in", *same_tools)
    compile_requirements("mutants", project, LOCKS / "mutants.in", "--extra", "test", *same_tools)
    for own in sorted(LOCKS.glob("airflow-*.in")):
        lock_airflow(own)
    lock_jars(jars.LOCK)
    lock_jars(KAFKA_VERSIONS)
    lock_jars(BENCH_JARS)
    lock_jars(TABLES)
    return 0


def compile_requirements(name: str, *sources: str | Path) -> None:
    """Write ``locks/NAME.txt`` with hashes, for every platform, naming no index."""
    python = OLDER_PYTHONS.get(name, "3.11")
    say(f"lock: {name}.txt")
    fixed = ("--universal", "--python-version", python, "--generate-hashes", "--no-annotate", "--no-header")
    plain = ("--no-emit-index-url", "--no-emit-find-links", "--quiet", "--upgrade")
    run(f"lock {name}", [UV, "pip", "compile", *fixed, *plain, *sources, "-o", LOCKS / f"{name}.txt"])


def lock_airflow(own: Path) -> None:
    """Write the lock file of another version of Airflow: what was current when it was released."""
    (day,) = re.findall(r"^# as-of (\S+)$", own.read_text(), re.MULTILINE)
    extras = ("--extra", "airflow", "--extra", "openlineage", "--extra", "cli", "--extra", "test")
    sources = (ROOT / "pyproject.toml", own, LOCKS / "build.in", *extras)
    compile_requirements(own.stem, *sources, "--exclude-newer", f"{day}T00:00:00Z")


def lock_jars(lock: Path) -> None:
    """Resolve the roots in the ``.in`` file beside a lock file and write coordinates with checksums."""
    java_home = Path(JAVA_HOME_FILE.read_text())
    rows = [
        line.split() for line in lock.with_suffix(".in").read_text().splitlines() if line and line[0] != "#"
    ]
    locked: set[jars.LockedJar] = set()
    for jar_set in sorted({row[0] for row in rows}):
        say(f"lock: jars {jar_set}")
        roots = [coordinate for name, coordinate in rows if name == jar_set]
        single = [jars.Coordinate.parse(root[1:]) for root in roots if root.startswith("=")]
        whole = [jars.Coordinate.parse(root) for root in roots if not root.startswith("=")]
        locked |= _resolve(java_home, jar_set, single, transitive=False)
        shipped = jars.spark_jar_names() if jar_set in BESIDE_SPARK else set()
        locked |= {
            jar
            for jar in _resolve(java_home, jar_set, whole, transitive=True)
            if jar.coordinate.artifact not in shipped
        }
    lines = [f"{jar.jar_set} {jar.coordinate} {jar.sha256}" for jar in sorted(locked)]
    head = f"# Written by `make lock` from {lock.stem}.in: set, group:artifact:version[:classifier], SHA-256."
    lock.write_text("\n".join([head, *lines]) + "\n")
    remove(HOME / "ivy")


def _resolve(
    java_home: Path, jar_set: str, roots: list[jars.Coordinate], *, transitive: bool
) -> set[jars.LockedJar]:
    if not roots:
        return set()
    folder = HOME / "ivy" / f"lock-{jar_set}"
    # The exit code tells nothing here: some poms name artifacts that exist nowhere and nobody needs.
    jars.retrieve(java_home, roots, folder, jars.Progress(None), transitive=transitive)
    return {
        jars.LockedJar(jar_set, jars.Coordinate(*path.stem.split(jars.SEPARATOR)), sha256_of(path))
        for path in folder.glob("*.jar")
    }


if __name__ == "__main__":
    sys.exit(main())
