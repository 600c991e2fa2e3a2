"""The codes of the package's errors, as ``docs/cookbook.md`` must answer them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import airflow_flinkstyle
from airflow_flinkstyle.errors import FlinkstyleError
from tools.common import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

COOKBOOK = ROOT / "docs" / "cookbook.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the package says of one code."""

    means: str
    """The first sentence of its class's docstring, or what its kind means."""
    passes: bool
    """The same call can succeed later with nobody changing anything, so Airflow tries the task again."""


def entries() -> dict[str, Entry]:
    """Return all codes that something is raised with: not those of families, from which others are made."""
    for module in pkgutil.walk_packages(airflow_flinkstyle.__path__, "airflow_flinkstyle."):
        if module.name.endswith(".errors"):
            importlib.import_module(module.name)
    found: dict[str, Entry] = {}
    for kind in sorted(classes(), key=lambda one: (len(one.__mro__), one.__module__)):
        means = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        if not means.startswith("Root of ") and kind.code not in found:
            found[kind.code] = Entry(means=means, passes=kind.retryable)
    return found


def classes(root: type[FlinkstyleError] = FlinkstyleError) -> Iterator[type[FlinkstyleError]]:
    """Yield the package's classes below one of its errors."""
    for kind in root.__subclasses__():
        if kind.__module__.startswith("airflow_flinkstyle"):
            yield kind
            yield from classes(kind)
