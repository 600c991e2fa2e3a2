"""From the kill of a driver on a cluster to its job's next commit, if its end is looked for all the time."""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.deployments.class_archive import MODULE
from benchmarks.common import PAIRS, Report, Spread, Table, Target
from benchmarks.recovery import JOB, KEYS, LOOK_S, TRIGGER_MS, begin, recovered, steps
from benchmarks.running_job import JVM, RunningJob
from testbed.clusters import JAVA_OPTIONS, Cluster, changed
from testbed.drivers import SPARK_PYTHON, spark_env
from testbed.jvm import from_file
from testbed.kubernetes.layout import IMAGES
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.recovery import Recovery
    from testbed.clusters import Place

PLACES: tuple[Place, ...] = ("standalone", "yarn", "kubernetes")
"""Kubernetes only where ``tools.kubernetes`` has built one."""
MOST_S = 12.0


def run(*, quick: bool) -> Report:
    """Kill a driver on each cluster again and again; start the next one once the cluster reports its end."""
    found: dict[str, list[Recovery]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-clusters-") as name:
        for place in PLACES if IMAGES.exists() else PLACES[:-1]:
            folder = Path(name) / place
            with Cluster(place, folder / "cluster") as cluster, RunningJob(folder / "job", JOB) as job:
                move(job, cluster)
                begin(job)
                found[place] = [recovered(job, job.client) for _ in range(1 if quick else PAIRS)]
    return report(found)


def move(job: RunningJob, cluster: Cluster) -> None:
    """Let the next start of a job be on a cluster, with what docs/start.md recommends there."""
    job.folder.mkdir(parents=True)
    target = cluster.target(job.target)
    job.target = changed(target, conf=starting_soon(target.conf, job.folder / "spark-classes.jsa"))
    view = job.client.view
    job.client = replace(job.client, view=replace(view, base_env={**view.base_env, **cluster.env}))


def starting_soon(conf: Mapping[str, str], archive: Path) -> dict[str, str]:
    """Make an archive of Spark's classes as for a node, and return settings with which both JVMs use it."""
    # Spark's jars first: Java takes an archive only if the class path begins as it did when it was made, and
    # YARN's goes on with the container's own folder.
    class_path = f"{conf['spark.driver.extraClassPath']}:{spark_paths().spark_home}/jars/*"
    draft = archive.with_suffix(".making")
    command = (SPARK_PYTHON, "-m", MODULE, draft, archive, spark_paths().spark_submit, class_path)
    subprocess.run(command, env=spark_env(), check=True)  # noqa: S603 - as docs/start.md has it
    options = " ".join((JVM, *from_file(archive)))
    return {
        **conf,
        **dict.fromkeys(JAVA_OPTIONS, options),
        **dict.fromkeys(("spark.driver.extraClassPath", "spark.executor.extraClassPath"), class_path),
        "spark.scheduler.minRegisteredResourcesRatio": "0",
    }


def report(found: Mapping[str, Sequence[Recovery]]) -> Report:
    """Say how long the job stood still."""
    spreads = {place: Spread.of([one.seconds for one in kills]) for place, kills in found.items()}
    load = Spread.of([one.load for kills in found.values() for one in kills])
    return Report(
        about=f"A job with {KEYS:,} keys and a batch every {TRIGGER_MS / 1000:g} s, its driver in cluster "
        "mode and its executors on one node of this machine; `kill -9` of the driver's JVM, while a watcher "
        f"reads the job's status every {LOOK_S:g} s. From the kill to the next commit, the start of Spark "
        f"and of its executors included. The machine's load before each was {load.text('', 1)}.",
        tables=(
            Table(
                columns=("cluster", "kill to commit", "worst"),
                rows=tuple((place, one.text(" s"), f"{one.high:.2f} s") for place, one in spreads.items()),
            ),
            steps(found, "step, since the one before"),
        ),
        targets=tuple(
            Target(what=f"kill -9 to commit, {place}", limit=MOST_S, found=one, unit=" s")
            for place, one in spreads.items()
        ),
        raw={place: [asdict(one) for one in kills] for place, kills in found.items()},
    )
