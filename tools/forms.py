"""``python -m tools.forms``: write docs/forms.md, every DAG of dags/ with the fields of its form."""

from __future__ import annotations

import os
import runpy
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from tools.common import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.sdk import DAG

PAGE = ROOT / "docs" / "forms.md"
DAGS = ROOT / "dags"
HEAD = (
    "# The DAGs and their forms\n\n"
    "Written by `python -m tools.forms` from the DAGs themselves. Each DAG is a file in "
    "[`dags/`](../dags/take_savepoint.py) and a function of `airflow_flinkstyle.dags` ([a DAG of your own]"
    "(start.md#a-dag-of-your-own-for-a-job)); a field's name is the argument that answers it. Behind it "
    "stand its default and what it asks for; one without a default must be filled in.\n"
)
_SHARED = 2
"""A field that so many forms have, with the same words, is explained once."""
_NO_JOBS = "AIRFLOW__FLINKSTYLE__JOBS"
"""Without it the DAGs of defined jobs have no job, on whichever machine this runs."""


def text() -> str:
    """Return the page's content."""
    before = os.environ.pop(_NO_JOBS, None)
    try:
        found = [runpy.run_path(str(path))["dag"] for path in sorted(DAGS.glob("*.py"))]
    finally:
        if before is not None:
            os.environ[_NO_JOBS] = before
    counted = Counter(field for dag in found for field in _fields(dag).items())
    common = dict(field for field, _ in reversed(counted.most_common()))
    shared = {line for name, line in common.items() if counted[name, line] >= _SHARED}
    fields = ["Fields that mean the same in every form, unless it says otherwise:\n", *sorted(shared), ""]
    return "\n".join([HEAD, *fields, *(part for dag in found for part in _dag(dag, shared))])


def _dag(dag: DAG, shared: set[str]) -> Iterator[str]:
    yield f"## {dag.dag_id}\n"
    yield f"{(dag.doc_md or '').strip()}\n"
    fields = _fields(dag)
    also = [f"`{name}`" for name, line in fields.items() if line in shared]
    yield from (line for line in fields.values() if line not in shared)
    if also:
        yield f"- {', '.join(also)}"
    yield "" if fields else "It has no form.\n"


def _fields(dag: DAG) -> dict[str, str]:
    return {name: _line(name, dag.params.get_param(name)) for name in dag.params}


def _line(name: str, param: Any) -> str:  # noqa: ANN401 - Airflow's, of several versions
    schema = param.schema
    shown = {value: words for value, words in (schema.get("values_display") or {}).items() if value}
    choices = "; ".join(f"`{value}`: {words}" for value, words in shown.items())
    if not choices and schema.get("enum"):
        choices = ", ".join(f"`{value}`" for value in schema["enum"] if value is not None)
    told = [f"{schema['title']}.", param.description, f"One of {choices}." if choices else None]
    default = f" ({_value(param.value)})" if param.has_value else ""
    return f"- `{name}`{default}: {' '.join(filter(None, told))}".replace("\n", " ")


def _value(value: object) -> str:
    if value is None:
        return "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def main() -> int:
    """Write it."""
    PAGE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
