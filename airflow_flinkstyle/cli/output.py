"""Answers on standard output, errors on standard error, and the exit codes."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.savepoint.manifest import Manifest

_PIPE_COLUMNS = 10_000
"""A pipe has no width; nothing may be broken over lines there."""


class ExitCode(IntEnum):
    """What a script can rely on; docs/cli.md says the same."""

    DONE = 0
    ERROR = 1
    """One of the package's errors: three sentences on standard error, and what they leave holds."""
    USAGE = 2
    """The command line was not understood; nothing was done."""
    PARTLY = 3
    """The command did its work, and the answer is not the plain yes."""
    INTERRUPTED = 130
    """Ctrl-C, or a question that was answered with no."""


def show(document: object, text: RenderableType, *, as_json: bool) -> None:
    """Print an answer: a JSON document, or a text for people."""
    if as_json:
        print(json.dumps(_plain(document), indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_COLUMNS
    console.print(text)


def report(error: FlinkstyleError, *, as_json: bool) -> None:
    """Print an error: the three sentences, or the same as a JSON document."""
    if not as_json:
        lines = (f"{error.code}: {error.problem}", error.state_after, error.remedy)
        print(*lines, sep="\n", file=sys.stderr)
        return
    fields = {
        "code": error.code,
        "problem": error.problem,
        "state_after": error.state_after,
        "remedy": error.remedy,
        "retryable": error.retryable,
    }
    print(json.dumps({"error": fields}, indent=2, ensure_ascii=False), file=sys.stderr)


def note(text: str) -> None:
    """Tell people something beside the answer."""
    print(text, file=sys.stderr)


def confirm(question: str, *, yes: bool) -> None:
    """Ask a person, unless ``--yes`` was given; no answer is a no."""
    try:
        agreed = yes or typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        note("Nothing was done.")
        raise typer.Exit(ExitCode.INTERRUPTED)


def table(*columns: str, rows: Sequence[Sequence[object]], title: str | None = None) -> Table:
    """Return a table; columns whose name starts with ``#`` hold numbers and stand to the right."""
    made = Table(
        title=title,
        title_justify="left",
        box=None,
        pad_edge=False,
        header_style="bold",
        show_header=any(columns),
    )
    for column in columns:
        number = column.startswith("#")
        made.add_column(column.removeprefix("#"), justify="right" if number else "left", no_wrap=number)
    for row in rows:
        made.add_row(*("-" if cell is None else str(cell) for cell in row))
    return made


def size(size_bytes: int) -> str:
    """Return a size as people read it."""
    return decimal(size_bytes)


def moment(at_ms: int) -> str:
    """Return a time in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")


def batches(found: Mapping[str, int]) -> str:
    """Return queries and their newest batches as one cell."""
    return ", ".join(f"{query}@{batch}" for query, batch in found.items())


def batches_of(manifest: Manifest) -> dict[str, int]:
    """Return each query's batch in a savepoint."""
    return {query.name: int(query.batch_id) for query in manifest.queries}


def _plain(value: object) -> object:
    """Turn dataclasses into what JSON can hold, wherever they stand."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
