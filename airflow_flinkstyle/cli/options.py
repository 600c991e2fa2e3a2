"""The options that several commands share, and what the shell completes them with."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Annotated

import typer

from airflow_flinkstyle.cli.factories import jobs_of, repository_of
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.types import Alignment

AS_JSON = "flinkstyle.json"
_MOST_COMPLETIONS = 100
"""More than people read at once."""


def _note_json(ctx: typer.Context, value: bool) -> bool:
    """Remember how an error is to be printed; all contexts of one command line share ``meta``."""
    ctx.meta[AS_JSON] = value
    return value


def _matching(names: Callable[[], Iterable[str]], incomplete: str) -> list[str]:
    """Return what completes the word; a root that cannot be read completes nothing."""
    try:
        return list(islice((name for name in names() if name.startswith(incomplete)), _MOST_COMPLETIONS))
    except FlinkstyleError:
        return []


def complete_job(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs below the root that was given."""
    root = ctx.params.get("root")
    return _matching(lambda: jobs_of(root), incomplete) if root else []


def complete_savepoint(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the savepoints of the job that was given."""
    root, job = ctx.params.get("root"), ctx.params.get("job")
    return _matching(lambda: repository_of(root, job).ids(), incomplete) if root and job else []


Root = Annotated[
    str,
    typer.Option(
        envvar="FLINKSTYLE_ROOT",
        help="Savepoint root: s3://bucket/prefix (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ...), or an absolute "
        "path.",
        is_eager=True,  # parsed before the options that are completed with it
    ),
]
Job = Annotated[
    str,
    typer.Option(
        "--job",
        "-j",
        envvar="FLINKSTYLE_JOB",
        help="Name of the job.",
        autocompletion=complete_job,
        is_eager=True,
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of text.", callback=_note_json)
]
SavepointId = Annotated[
    str, typer.Argument(help="Id of the savepoint.", autocompletion=complete_savepoint, show_default=False)
]
Aligned = Annotated[
    Alignment,
    typer.Option(
        help="aligned: all queries of the job stop at the same offsets first; none: each is cut where it is."
    ),
]
Key = Annotated[str | None, typer.Option(help="Name of the request, by which a repeated call finds it.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
TimeoutS = Annotated[float, typer.Option("--timeout", help="Seconds to wait at most.", min=0)]
