"""``flinkstyle savepoint cut``: savepoints of several jobs that belong together."""

import uuid
from typing import Annotated

import typer

from airflow_flinkstyle.cli.factories import client_of
from airflow_flinkstyle.cli.options import AsJson, Key, Root, TimeoutS, Yes, complete_job
from airflow_flinkstyle.cli.output import ExitCode, confirm, show, table
from airflow_flinkstyle.jobs.cut import cut_together


def cut(
    jobs: Annotated[
        list[str], typer.Argument(help="Names of the jobs.", autocompletion=complete_job, show_default=False)
    ],
    root: Root,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the jobs once the cut is complete.")] = False,
    key: Key = None,
    yes: Yes = False,
    timeout_s: TimeoutS = 600.0,
    as_json: AsJson = False,
) -> None:
    """Take savepoints of several running jobs at the same source offsets, or of none.

    All jobs resume uncut if one fails, and on Ctrl-C. With --stop, ends with 3 if a job did not stop.
    """
    if stop:
        confirm(f"Stop {', '.join(jobs)} together?", yes=yes)
    clients = [client_of(root, job) for job in jobs]
    done = cut_together(clients, key or f"cli:{uuid.uuid4()}", stop=stop, timeout_s=timeout_s)
    rows = [(job, savepoint_id, done.not_stopped.get(job)) for job, savepoint_id in done.savepoints.items()]
    columns = ("job", "savepoint", "did not stop")
    show(done, table(*columns, rows=rows, title=f"Cut {done.cut_id} is complete"), as_json=as_json)
    if done.not_stopped:
        raise typer.Exit(ExitCode.PARTLY)
