"""Whether the next version of a running job, or its next Spark, can continue where it is; before it stops.

Only what is given on the command line is known here. The driver that comes up checks again, with its session.
"""

from __future__ import annotations

import logging
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.jobs.stopped.last_run import read_checkpoint
from airflow_flinkstyle.savepoint.compat import (
    as_asked,
    check_confs,
    check_version,
    require_compatible,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.jobs.status import Run
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.savepoint.compat import Incompatibility

_ASK = "import importlib.metadata as m; print(m.version('pyspark'))"
_TIMEOUT_S = 30
_VERSION = re.compile(r"\d+\.\d+\.\d+[^\s'\"]*")
_VERSION_FILES = ("RELEASE", "version.py")
"""A file of a distribution, and one of a PySpark that pip installed."""
log = logging.getLogger(__name__)


def require_fitting(runs: JobView, spec: JobSpec, target: SubmitTarget) -> None:
    """Check that a start of this version would continue from what the job has now.

    Raises:
        FlinkstyleError: ``SPARK_INCOMPATIBLE``, naming all that would have to change; the job keeps running.
    """
    findings = spark_findings(runs, spec, target)
    require_compatible(
        f"job {runs.board.job}", findings, state_after="Nothing was stopped; the job keeps running."
    )


def spark_findings(runs: JobView, spec: JobSpec, target: SubmitTarget) -> tuple[Incompatibility, ...]:
    """Return what would have to change; nothing for a job that does not run."""
    status = runs.status()
    if not isinstance(status, Running):
        return ()
    findings = list(check_version(status.heartbeat.spark_version, spark_version(target)))
    changed = _changed(status.run, spec, target)
    for query, pinned in _pinned(runs, status) if changed else ():
        findings += check_confs(query, as_asked(pinned, {**target.conf, **spec.conf}), changed)
    return tuple(findings)


def spark_version(target: SubmitTarget) -> str:
    """Return the version of the Spark that a target starts; empty if it is not known here."""
    if target.spark_home is not None:
        files = (Path(target.spark_home) / name for name in _VERSION_FILES)
        found = next((_VERSION.search(path.read_text()) for path in files if path.is_file()), None)
        return found[0] if found else ""
    try:
        answer = subprocess.run(  # noqa: S603  # the interpreter that runs the user's scripts
            [target.python, "-c", _ASK], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("The version of Spark of %s is not known here: %s", target.python, error)
        return ""
    return answer.stdout.strip()


def _changed(run: Run, spec: JobSpec, target: SubmitTarget) -> dict[str, str]:
    """Return the settings that are not those of the running version.

    A script may override what both are given: a setting that is equal here may still differ there.
    """
    launch = run.claim.launch
    before = {**launch["target"]["conf"], **launch["spec"]["conf"]} if launch else {}
    after = {**target.conf, **spec.conf}
    return {name: value for name, value in after.items() if before.get(name) != value}


def _pinned(runs: JobView, status: Running) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield per query the settings that its checkpoint pins, as far as it can be read from here."""
    for name in status.heartbeat.queries:
        try:
            checkpoint = read_checkpoint(runs, status.run, name)
            newest = max(list_batches(checkpoint, "commits"), default=None)
            if newest is not None:
                yield name, offset_log.parse(checkpoint.read(f"offsets/{newest}").decode()).confs
        except FlinkstyleError as error:
            log.warning("What query %s pins is not known here: %s", name, error.problem)
