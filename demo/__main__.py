"""``python -m demo [--ui]``: exits 0 if nothing was lost and nothing counted twice."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from demo.contrast import Contrast
from demo.memory import PeakMemory
from demo.stage import TOPIC, Stage, set_stage
from demo.tables import Narrator, from_markdown, outcome
from demo.terminal import write_terminal
from testbed import paths
from testbed.drivers import state_reader
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

DAG = "migrate_kafka_cluster"
BY_PERSON = ("take_savepoint", "upgrade_job")
"""DAGs that only a person triggers."""
INTERRUPTED = 130
DELETED = {0: 100, 1: 40, 2: 250}
"""Partition -> records of ``old`` that retention has deleted before the mirror began."""
OPENING = {0: 949}
"""Orders of partition 0, written in one transaction: with its marker ``old`` ends at 1050, ``new`` at 950."""
RATE_PER_S = 300.0
ON_OLD_S, ON_NEW_S = 8.0, 8.0
"""How long the job reads each cluster, at least."""


def begin(stage: Stage, narrator: Narrator) -> None:
    """Write the first orders, mirror them, and show by how much offsets differ."""
    orders = stage.orders
    orders.create_topic(deleted=DELETED)
    orders.start_producer(rate_per_s=RATE_PER_S, opening=OPENING)
    narrator.say("Brokers [b]old[/] and [b]new[/] run; a producer writes numbered orders to old")
    stage.mirror.start()
    orders.new.wait_for_topic(TOPIC)
    # The marker of the mirror's one transaction stands behind the orders.
    wait_until("partition 0 is mirrored", lambda: orders.new.log_range(TOPIC)[0][1] > OPENING[0])
    old, new = orders.old.log_range(TOPIC)[0][1], orders.new.log_range(TOPIC)[0][1]
    narrator.say(f"MirrorMaker 2 mirrors; the end of partition 0 is {old} on old and {new} on new")


def start_job(stage: Stage, narrator: Narrator) -> None:
    """Start the job through its DAG."""
    stage.airflow.wait_ready()
    api = stage.airflow.api
    narrator.say(f"Airflow is up at {stage.airflow.base_url}")
    for dag in ("start_job", DAG):
        api.wait_for_dag(dag)
    run = api.trigger("start_job", stage.orders.start_form())
    if api.wait_for_run("start_job", run) != "success":
        raise RuntimeError(f"start_job failed:\n{api.logs('start_job', run, 'start')}")
    stage.orders.wait_commits(2)
    narrator.say(
        f"DAG [b]start_job[/] has started the job; it has committed batch {stage.orders.last_batch()}"
    )


def migrate(stage: Stage, narrator: Narrator) -> dict[str, Any]:
    """Trigger the migration, approve its table, and return its report."""
    api = stage.airflow.api
    run = api.trigger(DAG, stage.orders.migration_form())
    narrator.say(f"DAG [b]{DAG}[/] is triggered: pre-flight, hot savepoint, plan")
    waiting = ("awaiting_input", "deferred")
    api.wait_for_task(DAG, run, "approve", waiting)
    narrator.show(from_markdown("The plan to approve", api.xcom(DAG, run, "plan", "markdown")))
    api.respond(DAG, run, "approve", ["Approve"])
    narrator.say("Approved: the window begins")
    if api.wait_for_run(DAG, run) != "success":
        raise RuntimeError(f"The migration failed:\n{api.logs(DAG, run, 'migrate')}")
    narrator.say("The migration has ended and is verified")
    report: dict[str, Any] = api.xcom(DAG, run, "migrate")
    return report


def judge(stage: Stage, narrator: Narrator, report: dict[str, Any], peak: PeakMemory) -> bool:
    """Let the producer end, judge the job and its contrast, and print the tables."""
    orders = stage.orders
    with state_reader(orders.folder) as reader:
        reader.start()
        # Before that, plain Spark would notice that the position it was given lies beyond the end.
        position = orders.old.log_range(TOPIC)[0][1]
        wait_until("the position exists", lambda: orders.new.log_range(TOPIC)[0][1] > position)
        orders.end_producer()
        narrator.say("The producer has ended; the copy that was not rewritten resumes on new for contrast")
        contrast = Contrast(orders, report["savepoint_id"])
        try:
            moved = orders.judge(reader, orders.new)
            narrator.say(f"The migrated job:            {moved}")
            astray = contrast.judge(reader)
            narrator.say(f"Resumed without a rewrite:   {astray}")
        finally:
            contrast.end()
    facts = {"peak memory": f"{peak.peak_bytes / 2**30:.1f} GiB", "whole demo": f"{narrator.elapsed_s:.0f} s"}
    narrator.show(from_markdown("Positions", report["table"]))
    narrator.show(outcome(report, moved, astray, facts))
    return moved.right


def run(narrator: Narrator, peak: PeakMemory) -> bool:
    """Run everything without a person."""
    with set_stage() as stage:
        begin(stage, narrator)
        start_job(stage, narrator)
        time.sleep(ON_OLD_S)
        report = migrate(stage, narrator)
        enough = stage.orders.acknowledged() + RATE_PER_S * ON_NEW_S
        wait_until("more orders on new", lambda: stage.orders.acknowledged() > enough)
        return judge(stage, narrator, report, peak)


def run_with_person(narrator: Narrator, peak: PeakMemory) -> bool:
    """Leave trigger and approval to a person; Ctrl-C judges what they did and ends everything.

    Where a step fails, everything that runs stays up, so that it can be looked at.
    """
    with set_stage() as stage:
        prepared = steps_succeed(narrator, lambda: begin(stage, narrator), lambda: invite(stage, narrator))
        if not prepared:
            logs = paths.HOME / "demo"
            narrator.say(
                f"The rest stays up: Airflow at {stage.airflow.base_url}, logs in {logs}. Ctrl-C ends it"
            )
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            narrator.say("Interrupted; a second Ctrl-C ends everything without a judgement")
        report = finished_migration(stage) if prepared else None
        if report is None:
            narrator.say("No migration has ended with success: nothing to judge")
            return prepared
        return judge(stage, narrator, report, peak)


def steps_succeed(narrator: Narrator, *steps: Callable[[], None]) -> bool:
    """Take the steps; the first that fails is told in one sentence, and ends them."""
    try:
        for step in steps:
            step()
    except Exception as error:  # noqa: BLE001 - whatever fails, the person is told and the stage stays
        narrator.say(f"FAILED: {in_a_line(error)}")
        return False
    return True


def in_a_line(error: Exception) -> str:
    """Return what went wrong, without frames and ends of logs."""
    first, _, rest = str(error).strip().partition("\n")
    return f"{first or type(error).__name__}{' ...' if rest else ''}"


def invite(stage: Stage, narrator: Narrator) -> None:
    """Start the job, and tell the person what to do."""
    start_job(stage, narrator)
    narrator.say(f"Open {stage.airflow.base_url}/dags/{DAG} and click Trigger; fill in:")
    for name, value in stage.orders.migration_form().items():
        narrator.say(f"    {name} = {value}")
    for dag in BY_PERSON:
        stage.airflow.api.wait_for_dag(dag)
    narrator.say("Approve the table under Required Actions. Ctrl-C here judges the job and ends it all.")
    narrator.say(f"Or follow docs/tutorial.md in a second terminal: source {write_terminal(stage)}")


def finished_migration(stage: Stage) -> dict[str, Any] | None:
    """Return the report of the newest migration that succeeded."""
    api = stage.airflow.api
    newest = api.call("GET", f"/dags/{DAG}/dagRuns?state=success&order_by=-start_date")["dag_runs"]
    return api.xcom(DAG, newest[0]["dag_run_id"], "migrate") if newest else None


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument(
        "--ui", action="store_true", help="leave trigger and approval to you, in Airflow's UI"
    )
    options = parser.parse_args()
    narrator = Narrator()
    with PeakMemory(os.getppid()) as peak:
        try:
            right = (run_with_person if options.ui else run)(narrator, peak)
        except KeyboardInterrupt:
            narrator.say("Interrupted; everything has ended")
            return INTERRUPTED
        except (OSError, RuntimeError) as error:  # OSError has Python's time-outs, RuntimeError the stage's
            narrator.say(f"FAILED, and everything has ended: {in_a_line(error)} Logs: {paths.HOME / 'demo'}")
            return 1
    narrator.say("Nothing was lost, nothing counted twice" if right else "WRONG: orders were lost or doubled")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
