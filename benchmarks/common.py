"""How benchmarks measure: contenders take turns, ratios are taken within a round, children are charged whole.

A benchmark is a module with ``run(*, quick: bool) -> Report``; ``quick`` shrinks the sizes until only the
code is tried. ``benchmarks/__main__.py`` lists them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")
MIB = 1 << 20
PAIRS = 5
"""Rounds of a full run, at least."""
_CHILD = Path(__file__).with_name("child.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one child process used, from its start to its end."""

    wall_s: float
    cpu_s: float
    """User and system time, of the descendants it waited for too."""
    peak_rss_bytes: int
    """Of the largest single process among them."""


def measure(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 600,
) -> Usage:
    """Run a command to its end and return what it used.

    Raises:
        RuntimeError: If it fails; the end of its output is in the message.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        result = Path(folder) / "usage.json"
        done = subprocess.run(  # noqa: S603  (the contenders are ours to choose)
            [sys.executable, "-I", "-S", str(_CHILD), str(result), "--", *map(str, command)],
            env=dict(env) if env is not None else None,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-3000:]}")
        return Usage(**json.loads(result.read_text()))


def interleave(contenders: Mapping[str, Callable[[], T]], *, rounds: int) -> dict[str, list[T]]:
    """Let each contender run once per round, every other round in the opposite order; one list for each."""
    results: dict[str, list[T]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name in list(contenders)[:: -1 if number % 2 else 1]:
            results[name].append(contenders[name]())
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Several measurements of one thing."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return median, smallest and largest."""
        return cls(median=statistics.median(values), low=min(values), high=max(values))

    def text(self, unit: str = "", digits: int = 2) -> str:
        """Return the median with the range in brackets: ``8.40 s (8.12-9.03)``."""
        low, high = f"{self.low:.{digits}f}", f"{self.high:.{digits}f}"
        return f"{self.median:.{digits}f}{unit} ({low}-{high})"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return ours divided by theirs, round by round: what slows a round down slows both."""
    return Spread.of([own / other for own, other in zip(ours, theirs, strict=True)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One promise and what was found."""

    what: str
    limit: float
    """The largest value that keeps the promise."""
    found: Spread
    unit: str = "x"

    @property
    def met(self) -> bool:
        """True if the median keeps the promise."""
        return self.found.median <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of text under columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    detail: bool = False
    """Only for the terminal and the JSON: the page leaves it out."""

    def as_markdown(self) -> str:
        """Render as GitHub draws it."""
        head, *rows = [f"| {' | '.join(line)} |" for line in (self.columns, *self.rows)]
        return "\n".join([head, f"|{'---|' * len(self.columns)}", *rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one benchmark found."""

    about: str
    """What was measured, with its sizes: one paragraph."""
    tables: tuple[Table, ...]
    targets: tuple[Target, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict)
    """Every single measurement, for the JSON beside the table."""
