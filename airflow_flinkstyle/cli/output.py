"""Answers on standard output, errors and a progress bar on standard error, and the exit codes."""

from __future__ import annotations

import json
import re
import shlex
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table

from airflow_flinkstyle.python_versions import UTC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import ConsoleOptions, RenderableType, RenderResult

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.savepoint.manifest import Manifest

_PIPE_COLUMNS = 10_000
"""A pipe has no width; nothing may be broken over lines there."""
_ARGUMENT = re.compile(r"""\b(?P<name>[a-z_]+)=(?P<value>'[^']*'|\[[^\]]*\]|True\b|[0-9.]+\b|(?=\s))""")
_PROSE_COLUMNS = 20
"""The least width of a column of prose: a time to the second fits in one line."""
_GAP_COLUMNS = 2
"""Between two columns of a table."""


class ExitCode(IntEnum):
    """What a script can rely on; docs/cli.md lists the same."""

    DONE = 0
    ERROR = 1
    """One of the package's errors: three sentences on standard error; the second names what is left."""
    USAGE = 2
    """The command line was not understood; nothing was done."""
    PARTLY = 3
    """The command did its work, but its answer is not a plain yes."""
    INTERRUPTED = 130
    """Ctrl-C, or a question that was answered with no."""


def show(document: object, text: RenderableType, *, as_json: bool) -> None:
    """Print an answer: a JSON document, or a text for people."""
    if as_json:
        print(json.dumps(_plain(document), indent=2, ensure_ascii=False))
        return
    _console().print(text)


def _console(*, stderr: bool = False) -> Console:
    console = Console(highlight=False, markup=False, emoji=False, stderr=stderr)
    if not console.is_terminal:
        console.width = _PIPE_COLUMNS
    return console


def report(error: FlinkstyleError, *, as_json: bool, options: Mapping[str, str]) -> None:
    """Print an error: the three sentences, or the same as a JSON document.

    Ends of logs, which some errors hold, are printed after the sentences.

    Args:
        error: What failed.
        as_json: Print a document.
        options: Parameter of Python -> option of the command that failed.
    """
    remedy = in_options(error.remedy, options)
    if not as_json:
        parts = [text.partition("\n") for text in (error.problem, error.state_after, remedy)]
        lines = [first for first, _, _ in parts] + [rest.rstrip() for _, _, rest in parts if rest.strip()]
        lines[0] = f"{error.code}: {lines[0]}"
        print(*lines, sep="\n", file=sys.stderr)
        return
    fields = {
        "code": error.code,
        "problem": error.problem,
        "state_after": error.state_after,
        "remedy": remedy,
        "retryable": error.retryable,
    }
    print(json.dumps({"error": fields}, indent=2, ensure_ascii=False), file=sys.stderr)


def in_options(remedy: str, options: Mapping[str, str]) -> str:
    """Return a remedy with the command's options where the library names its parameters.

    The library writes ``from_job='orders'``; a person at a terminal types ``--from-job orders``.
    """

    def option(found: re.Match[str]) -> str:
        name, value = found["name"], found["value"].strip("[]'\"")
        if name not in options:
            return found[0]
        return options[name] if value in ("", "True") else f"{options[name]} {shlex.quote(value)}"

    return _ARGUMENT.sub(option, remedy)


def note(text: RenderableType) -> None:
    """Print something for people beside the answer, on standard error."""
    _console(stderr=True).print(text)


def confirm(question: str, *, yes: bool) -> None:
    """Ask a person, unless ``--yes`` was given; no answer is a no."""
    try:
        agreed = yes or typer.confirm(question, err=True)
    except typer.Abort:
        agreed = False
    if not agreed:
        note("Nothing was done.")
        raise typer.Exit(ExitCode.INTERRUPTED)


def table(*columns: str, rows: Sequence[Sequence[object]], title: str | None = None) -> RenderableType:
    """Return a table; columns whose name starts with ``#`` hold numbers and are aligned right.

    Where the terminal is too narrow for it, each row is printed as lines of name and value: nothing is left
    out, and no id is broken over lines.
    """
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    return _Table(columns=columns, rows=texts, title=title)


@dataclass(frozen=True, kw_only=True)
class _Table:
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        named = any(self.columns)
        if not named or len(self.rows) == 0 or self._least_width() <= options.max_width:
            yield self._side_by_side(named=named)
            return
        if self.title:
            yield self.title
        heads = [column.removeprefix("#") for column in self.columns]
        for number, row in enumerate(self.rows):
            if number:
                yield ""
            pairs = [list(pair) for pair in zip(heads, row, strict=True)]
            yield _Table(columns=("", ""), rows=pairs, title=None)

    def _side_by_side(self, *, named: bool) -> Table:
        made = Table(
            title=self.title,
            title_justify="left",
            box=None,
            pad_edge=False,
            header_style="bold",
            show_header=named,
        )
        for place, column in enumerate(self.columns):
            number = column.startswith("#")
            made.add_column(
                column.removeprefix("#"),
                justify="right" if number else "left",
                no_wrap=number or ((named or place == 0) and not self._is_prose(place)),
                overflow="fold",
            )
        for row in self.rows:
            made.add_row(*row)
        return made

    def _is_prose(self, place: int) -> bool:
        return any(" " in row[place] for row in self.rows)

    def _least_width(self) -> int:
        """Return the width that the table needs; prose may be broken between words."""
        widths = []
        for place, column in enumerate(self.columns):
            widest = max(
                cell_len(text) for text in (column.removeprefix("#"), *(r[place] for r in self.rows))
            )
            whole = column.startswith("#") or not self._is_prose(place)
            widths.append(widest if whole else min(widest, _PROSE_COLUMNS))
        return sum(widths) + _GAP_COLUMNS * (len(widths) - 1)


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
    """Turn dataclasses into what JSON can hold, at any depth."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


class TransferAmount(Protocol):
    """How far a transfer is, as captures, requests and checks report it."""

    @property
    def files_done(self) -> int:
        """Files that are done."""

    @property
    def files_total(self) -> int:
        """Files in all."""

    @property
    def bytes_done(self) -> int:
        """Bytes that are done."""

    @property
    def bytes_total(self) -> int:
        """Bytes in all; 0 as long as it is unknown."""


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[TransferAmount], None]]:
    """Show a bar while the block runs, only on a terminal; yields what moves it."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[files]}"),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(title, total=None, files="")

        def move(amount: TransferAmount) -> None:
            progress.update(
                bar,
                completed=amount.bytes_done,
                total=amount.bytes_total or None,
                files=f"{amount.files_done}/{amount.files_total} files",
            )

        yield move
