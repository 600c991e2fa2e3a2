"""One name means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import airflow_flinkstyle

_PACKAGE = Path(airflow_flinkstyle.__file__).parent
_ASKED_FOR_BY_NAME = {"Java"}
"""py4j looks for an inner class of this name."""


def test_no_two_classes_of_the_package_share_a_name():
    places: dict[str, list[str]] = defaultdict(list)
    for file in sorted(_PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{file.relative_to(_PACKAGE)}:{node.lineno}")
    assert len(places) > 500  # it has looked
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert shared.keys() <= _ASKED_FOR_BY_NAME, shared
