"""``python -m tools.registry``: write .airflow-registry.yaml, which Airflow's provider registry reads.

Every operator, sensor and trigger with the first line of its docstring, and every function that makes a DAG.
"""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

from airflow_flinkstyle.provider_info import get_provider_info
from tools.common import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = ROOT / ".airflow-registry.yaml"
PACKAGE = ROOT / "airflow_flinkstyle"
ENDS = {"operators": "Operator", "sensors": "Sensor", "triggers": "Trigger", "hooks": "Hook"}
"""Room -> how the names of its classes end that people use."""
ABSTRACT = (
    *("StreamingJobOperator", "AskingOperator", "MigrationOperator", "StreamingJobSensor", "PollTrigger"),
)
HEAD = """\
# Written by `python -m tools.registry`: what Airflow's provider registry shows of this package.

package-name: {package}
display-name: {name}
description: {description}
"""


def classes(room: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each class that people use, and the first line of its docstring."""
    for file in sorted((PACKAGE / room).glob("*.py")):
        for node in _parsed(file).body:
            if not isinstance(node, ast.ClassDef) or node.name in ABSTRACT:
                continue
            if node.name.endswith(ENDS[room]):
                yield f"airflow_flinkstyle.{room}.{file.stem}.{node.name}", _first_line(node)


def dag_functions() -> Iterator[tuple[str, str]]:
    """Yield the path of each function that makes a DAG, and the first line of its docstring."""
    for file in sorted((PACKAGE / "dags").glob("*.py")):
        for node in _parsed(file).body:
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_dag"):
                yield f"airflow_flinkstyle.dags.{node.name}", _first_line(node)


def text() -> str:
    """Return the file's content."""
    info = get_provider_info()
    parts = [HEAD.format(package=info["package-name"], name=info["name"], description=info["description"])]
    sections = [(room, classes(room)) for room in ENDS]
    for title, found in [*sections, ("other", dag_functions())]:
        entries = [f"  - module: {path}\n    description: {_quoted(line)}\n" for path, line in found]
        parts.append(f"{title}:\n{''.join(entries)}")
    return "\n".join(parts)


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _first_line(node: ast.ClassDef | ast.FunctionDef) -> str:
    return (ast.get_docstring(node) or "").partition("\n")[0].replace("``", "`")


def _quoted(line: str) -> str:
    return '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'


def main() -> int:
    """Write it."""
    FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
