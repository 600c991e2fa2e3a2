"""What the demo prints: progress, and the two tables at the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType

    from testbed.judge import Judgement


class Narrator:
    """Prints each step with the seconds since the start."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, width=110)
        self._began = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """Print a step."""
        self._console.print(f"[dim]{self.elapsed_s:6.1f} s[/]  {text}")

    def show(self, table: RenderableType) -> None:
        """Print a table."""
        self._console.print(table)


def from_markdown(title: str, markdown: str) -> Markdown:
    """Return a text with its tables, under a heading."""
    return Markdown(f"**{title}**\n\n{markdown}")


def outcome(
    report: Mapping[str, Any], moved: Judgement, contrast: Judgement, facts: Mapping[str, str]
) -> Table:
    """Return the verdict on the migration, beside that on the resume without a rewrite."""
    table = Table(title="Counted order by order", title_justify="left")
    for name in ("", "migrated", "resumed on new without a rewrite"):
        table.add_column(name)
    table.add_row("records acknowledged", str(moved.acknowledged), str(contrast.acknowledged))
    table.add_row("records counted", str(moved.counted), str(contrast.counted))
    table.add_row("lost", str(len(moved.lost)), str(len(contrast.lost)))
    table.add_row("twice", str(moved.twice_count), str(contrast.twice_count), end_section=True)
    downtime = report["downtime_s"]
    table.add_row("savepoint", f"{report['savepoint_bytes'] / 1024:.0f} KiB")
    table.add_row("producers held", f"{report['held_s']:.1f} s")
    table.add_row("downtime", "nothing to read" if downtime is None else f"{downtime:.1f} s")
    for phase, seconds in report["phases_s"].items():
        table.add_row(f"  {phase}", f"{seconds:.1f} s")
    for name, value in facts.items():
        table.add_row(name, value)
    return table
