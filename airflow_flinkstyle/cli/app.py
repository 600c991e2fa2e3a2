"""All commands in one place, and the one place where an error becomes text and an exit code."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from airflow_flinkstyle.cli import (
    cut,
    inspect,
    job,
    mirror,
    offsets,
    positions,
    retain,
    store,
    take,
    topic,
    transactions,
    transfer,
)
from airflow_flinkstyle.cli.options import AS_JSON
from airflow_flinkstyle.cli.output import ExitCode, report
from airflow_flinkstyle.errors import FlinkstyleError


class _Root(TyperGroup):
    """Runs a command; the package's errors end here, and only they."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - Typer's own context, which it does not export
        try:
            return super().invoke(ctx)
        except FlinkstyleError as error:
            report(error, as_json=ctx.meta.get(AS_JSON, False))
            raise typer.Exit(ExitCode.ERROR) from error


def _group(help_text: str, commands: dict[str, Any], **settings: Any) -> typer.Typer:
    group = typer.Typer(
        help=help_text,
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # frames hold keys of the store
        **settings,
    )
    for name, command in commands.items():
        group.command(name)(command)
    return group


app = _group("Savepoints for PySpark Structured Streaming.", {}, cls=_Root)
app.add_typer(
    _group(
        "Take, look at, check, keep and move savepoints.",
        {
            "take": take.take,
            "cut": cut.cut,
            "list": inspect.list_savepoints,
            "show": inspect.show_savepoint,
            "diff": inspect.diff,
            "verify": take.verify,
            "restore": take.restore,
            "pin": retain.pin,
            "unpin": retain.unpin,
            "dispose": retain.dispose,
            "prune": retain.prune,
            "export": transfer.export,
            "import": transfer.import_,
        },
    ),
    name="savepoint",
)
app.add_typer(
    _group(
        "Look at the Kafka offsets of savepoints, and move them to another cluster.",
        {
            "show": positions.show_offsets,
            "plan": offsets.plan,
            "apply": offsets.apply,
            "compare": positions.compare,
        },
    ),
    name="offsets",
)
app.add_typer(
    _group(
        "Look at jobs and stop them.",
        {
            "list": job.list_jobs,
            "status": job.job_status,
            "stop": job.stop,
            "declare-dead": job.declare_dead,
        },
    ),
    name="job",
)
app.add_typer(_group("Look at a mirror between Kafka clusters.", {"status": mirror.status}), name="mirror")
app.add_typer(
    _group(
        "Find the transactions that hold readers back, and end those of dead jobs.",
        {
            "list": transactions.list_open,
            "describe": transactions.describe,
            "abort": transactions.abort,
        },
    ),
    name="transactions",
)
app.add_typer(_group("Check what a topic holds.", {"verify": topic.verify}), name="topic")
app.add_typer(_group("Try a store.", {"check": store.check}), name="store")
