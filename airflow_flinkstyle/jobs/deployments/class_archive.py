"""An archive of Spark's classes, from which the JVMs of this machine's drivers start sooner.

A JVM spends most of its start on reading, checking and linking Spark's classes. Java writes those that a
first run has loaded into a file (``-XX:ArchiveClassesAtExit``), which later ones map. The JVM ignores an
archive that is damaged or does not fit, of another Java or other jars, and starts as without it.

``python -m airflow_flinkstyle.jobs.deployments.class_archive DRAFT ARCHIVE SPARK_SUBMIT CLASS_PATH`` makes
one. It runs in the background of the first start, as a driver of its own that writes only to its scratch
folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.python_versions import SAFE_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_flinkstyle.jobs.deployments.base import Submission

MODULE: Final = "airflow_flinkstyle.jobs.deployments.class_archive"
FOLDER: Final = ".class-archives"
"""Beside the logs of the drivers."""
OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Where ``spark-submit`` reads options of its JVM; those of the job's settings come after them and win."""
_USES_ONE: Final = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare")
_ENVIRONMENT: Final = ("PATH", "HOME", "LANG", "JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON")
"""All variables that making an archive gets: a driver's environment holds credentials."""
_CLASS_PATH: Final = "spark.driver.extraClassPath"
"""It comes before Spark's jars, and Java takes an archive only if the class path begins as it did then."""
_TIMEOUT_S: Final = 900.0
_RETRY_AFTER_S: Final = 86_400.0
"""How long to wait before another try after an archive could not be made."""
_NICE: Final = ("nice", "-n", "10")
_JOB: Final = """
import sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").load()
counts = rows.groupBy((F.col("value") % 7).alias("k")).agg(F.count("*"), F.max("value"))
(counts.writeStream.outputMode("complete").foreachBatch(lambda batch, _: batch.collect())
 .option("checkpointLocation", sys.argv[1]).trigger(availableNow=True).start().awaitTermination())
"""
_making: list[subprocess.Popen[bytes]] = []
"""Kept, since Python warns about a running process that has no reference left."""
log = logging.getLogger(__name__)


def with_archive(submission: Submission) -> Mapping[str, str]:
    """Return a driver's environment with its JVM's options for the archive; unchanged while there is none.

    The first caller starts to make the archive, and does not wait for it.
    """
    env = submission.env
    arguments = (one for one in submission.argv if not one.startswith("spark.executor."))
    given = [env.get(OPTIONS, ""), *arguments]
    if any(flag in one for one in given for flag in _USES_ONE):  # the job has an archive of its own
        return env
    class_path = _class_path(submission.argv)
    archive = Path(submission.log_path).parent / FOLDER / f"{_key(env, class_path)}.jsa"
    try:
        archive.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _is_ours(archive.parent):  # a JVM executes what is in it
            log.warning("No archive of Spark's classes is used: others may write to %s", archive.parent)
            return env
    except OSError as error:  # the driver can start without it
        log.warning("No archive of Spark's classes is made: %s", error)
        return env
    if archive.exists():
        options = (env.get(OPTIONS, ""), f"-XX:SharedArchiveFile={archive}", "-Xshare:auto")
        return {**env, OPTIONS: " ".join((*options, "-Xlog:cds=off", "-Xlog:cds+dynamic=off")).strip()}
    try:
        _begin(archive, submission, class_path)
    except OSError as error:  # the driver can start without it
        log.warning("No archive of Spark's classes is made: %s", error)
    return env


def _is_ours(folder: Path) -> bool:
    """Return whether only this user may write to a folder."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _class_path(argv: Sequence[str]) -> str:
    """Return what comes before Spark's jars in a driver's class path; empty if nothing does."""
    found = ""
    for name, value in itertools.pairwise(argv):
        if name == "--driver-class-path":
            found = value
        elif name == "--conf" and value.startswith(f"{_CLASS_PATH}="):
            found = value.partition("=")[2]
    return found


def _key(env: Mapping[str, str], class_path: str) -> str:
    """Return a name for this Java and these jars; any other Java or jars have an archive of their own."""
    java = shutil.which("java", path=f"{env.get('JAVA_HOME', '')}/bin:{env.get('PATH', '')}")
    home = Path(java).resolve().parents[1] if java else Path()
    files = [
        home / "release",
        home / "lib" / "modules",
        *sorted(_jars(env)),
        *map(Path, class_path.split(":")),
    ]
    digest = hashlib.sha256(class_path.encode())
    for file in files:
        with contextlib.suppress(OSError):
            found = file.stat()
            digest.update(f"{file} {found.st_size} {found.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:24]


def _jars(env: Mapping[str, str]) -> Iterator[Path]:
    """Yield Spark's jars, where ``spark-submit`` finds them."""
    home, python = env.get("SPARK_HOME"), Path(env.get("PYSPARK_PYTHON", ""))
    if home:
        yield from Path(home, "jars").glob("*.jar")
    elif len(python.parents) > 1:
        yield from python.parents[1].glob("lib/python*/*/pyspark/jars/*.jar")


def _begin(archive: Path, submission: Submission, class_path: str) -> None:
    """Start a process that makes the archive, unless one is running, or has failed recently."""
    draft = archive.with_suffix(".making")
    with contextlib.suppress(FileNotFoundError):
        if time.time() - draft.stat().st_mtime < _RETRY_AFTER_S:
            return
        draft.unlink(missing_ok=True)
    try:
        draft.touch(exist_ok=False)
    except FileExistsError:
        return
    nice = _NICE if shutil.which(_NICE[0]) else ()
    python = (*nice, sys.executable, *SAFE_PATH, "-m", MODULE)
    process = subprocess.Popen(  # noqa: S603 - this package's own module; no shell
        (*python, str(draft), str(archive), submission.argv[0], class_path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={name: submission.env[name] for name in _ENVIRONMENT if name in submission.env},
        cwd="/",
        start_new_session=True,
    )
    _making.append(process)
    log.info("An archive of Spark's classes is made in the background: %s", archive)


def make(draft: Path, archive: Path, spark_submit: str, class_path: str = "") -> None:
    """Let a small job load Spark's classes, and put them into the archive, whole or not at all.

    Args:
        draft: Marks that the archive is being made; if that fails, it stays and holds the reason.
        archive: Where the archive goes.
        spark_submit: The program.
        class_path: What comes before Spark's jars.
    """
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        script, file = Path(folder) / "job.py", Path(folder) / "classes.jsa"
        script.write_text(_JOB)
        # In SPARK_SUBMIT_OPTS, as in the drivers that use it; a job's own settings play no part here.
        env = {**os.environ, OPTIONS: f"-XX:ArchiveClassesAtExit={file} -Xshare:auto"}
        conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
        conf |= {_CLASS_PATH: class_path} if class_path else {}
        options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
        argv = (spark_submit, "--master", "local[1]", *options, str(script), f"{folder}/checkpoint")
        done = subprocess.run(  # noqa: S603 - as the drivers are started
            argv, env=env, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        if done.returncode or not file.exists():
            draft.write_text(f"{argv} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
            return
        file.replace(archive)
    draft.unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> None:
    """Make an archive, for a driver or on a node (docs/start.md); exit with the reason if it fails."""
    draft, archive, spark_submit, class_path = arguments
    make(Path(draft), Path(archive), spark_submit, class_path)
    if Path(draft).exists():
        why = Path(draft).read_text()
        sys.exit(f"No archive of Spark's classes was made; {draft} holds the reason:\n{why}")


if __name__ == "__main__":
    main(sys.argv[1:])
