"""A progress bar on standard error: bytes, files, rate, time left."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class TransferAmount(Protocol):
    """How far something is, as captures, requests and checks tell it."""

    @property
    def files_done(self) -> int:
        """Files that are through."""

    @property
    def files_total(self) -> int:
        """Files in all."""

    @property
    def bytes_done(self) -> int:
        """Bytes that are through."""

    @property
    def bytes_total(self) -> int:
        """Bytes in all; 0 as long as nobody knows."""


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[TransferAmount], None]]:
    """Show a bar while the block runs, and hand out what moves it; only where people look."""
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
