"""The codes of the package's errors, as ``docs/cookbook.md`` must answer them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import airflow_flinkstyle
from airflow_flinkstyle.errors import ErrorKind, FlinkstyleError
from tools.common import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

COOKBOOK = ROOT / "docs" / "cookbook.md"

Passes = Literal["always", "sometimes", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the package says of one code."""

    means: str
    """What its row in a package's table of errors means, or the first sentence of its class's docstring."""
    passes: Passes
    """Whether the same call can succeed later with nobody changing anything, and Airflow tries it again."""


def entries() -> dict[str, Entry]:
    """Return all codes that something is raised with: not those of families, from which others are made."""
    means: dict[str, str] = {}
    passes: dict[str, set[bool]] = {}
    for _, row in sorted(rows().items()):
        means.setdefault(row.code, row.means)
        passes.setdefault(row.code, set()).add(row.transient)
    for kind in sorted(classes(), key=lambda one: (len(one.__mro__), one.__module__)):
        told = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        if not told.startswith("Root of "):
            means.setdefault(kind.code, told)
            passes.setdefault(kind.code, set()).add(kind.retryable)
    return {code: Entry(means=text, passes=_PASSES[frozenset(passes[code])]) for code, text in means.items()}


_PASSES: Mapping[frozenset[bool], Passes] = {
    frozenset({True}): "always",
    frozenset({True, False}): "sometimes",
    frozenset({False}): "never",
}


def rows() -> dict[str, ErrorKind]:
    """Return the rows of all tables of errors, cases too, by the names that they are raised by."""
    return {
        name: row
        for module in pkgutil.walk_packages(airflow_flinkstyle.__path__, "airflow_flinkstyle.")
        if module.name.endswith(".errors")
        for name, row in vars(importlib.import_module(module.name)).items()
        if isinstance(row, ErrorKind)
    }


def classes(root: type[FlinkstyleError] = FlinkstyleError) -> Iterator[type[FlinkstyleError]]:
    """Yield the package's classes below one of its errors."""
    for kind in root.__subclasses__():
        if kind.__module__.startswith("airflow_flinkstyle"):
            yield kind
            yield from classes(kind)
