"""All commands in one place, and the one place where an error becomes text and an exit code."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from airflow_flinkstyle import __version__
from airflow_flinkstyle.cli import (
    adopt,
    agent,
    compare,
    inspect,
    job,
    migration,
    replay,
    retain,
    run,
    state,
    store,
    take,
)
from airflow_flinkstyle.cli.kafka import mirror, offsets, positions, topic, transactions
from airflow_flinkstyle.cli.options import AS_JSON
from airflow_flinkstyle.cli.output import ExitCode, report
from airflow_flinkstyle.errors import FlinkstyleError


class _Command(TyperCommand):
    """Runs a command; the package's errors end here, and only they."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - Typer's own context, which it does not export
        try:
            return super().invoke(ctx)
        except FlinkstyleError as error:
            options = {str(param.name): param.opts[0] for param in self.params if param.opts}
            report(error, as_json=ctx.meta.get(AS_JSON, False), options=options)
            raise typer.Exit(ExitCode.ERROR) from error


def _group(help_text: str, commands: dict[str, Any]) -> typer.Typer:
    group = typer.Typer(
        help=help_text,
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # frames hold keys of the store
    )
    for name, command in commands.items():
        group.command(name, cls=_Command)(command)
    return group


app = _group("Savepoints for PySpark Structured Streaming.", {})


def _print_version(asked: bool) -> None:
    if asked:
        print(f"flinkstyle {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    pass


app.add_typer(
    _group(
        "Take, inspect, check, keep and move savepoints.",
        {
            "take": take.take,
            "cut": take.cut,
            "list": inspect.list_savepoints,
            "show": inspect.show_savepoint,
            "diff": inspect.diff,
            "state": state.state,
            "state-diff": state.state_diff,
            "repartition": state.repartition,
            "transform": state.transform,
            "convert": state.convert,
            "bootstrap": state.bootstrap,
            "with-keys": state.with_keys,
            "verify": take.verify,
            "restore": take.restore,
            "pin": retain.pin,
            "unpin": retain.unpin,
            "release": retain.release,
            "dispose": retain.dispose,
            "prune": retain.prune,
            "export": take.export,
            "import": take.import_,
        },
    ),
    name="savepoint",
)
app.add_typer(
    _group(
        "Show the Kafka offsets of savepoints, and move them to another cluster.",
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
        "Show jobs, start and stop them.",
        {
            "list": job.list_jobs,
            "status": job.job_status,
            "start": run.start,
            "restart": run.restart,
            "stop": job.stop,
            "logs": run.logs,
            "health": run.health,
            "compare": compare.compare,
            "bisect": replay.bisect,
            "replay": replay.replay,
            "remove": retain.remove,
            "adopt": adopt.adopt,
            "adopt-running": adopt.adopt_running,
            "leave": adopt.leave,
            "declare-dead": job.declare_dead,
        },
    ),
    name="job",
)
app.add_typer(
    _group(
        "Finish or undo migrations and upgrades that no process works on any more.",
        {
            "list": migration.list_unsettled,
            "settle": migration.settle,
            "release": migration.release,
        },
    ),
    name="migration",
)
app.add_typer(_group("Inspect a mirror between Kafka clusters.", {"status": mirror.status}), name="mirror")
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
app.add_typer(
    _group(
        "Check a store, adopt a savepoint root, and show what a job keeps.",
        {"check": store.check, "adopt-root": store.adopt, "usage": store.usage},
    ),
    name="store",
)
app.add_typer(_group("Bring the agent to drivers.", {"pack": agent.pack}), name="agent")
