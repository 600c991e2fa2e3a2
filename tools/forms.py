"""``python -m tools.forms``: write docs/forms.md, every DAG of dags/ with the fields of its form."""

from __future__ import annotations

import os
import runpy
import sys
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
    "(start.md#a-dag-of-your-own-for-a-job)); a field's name is the argument that answers it. Fields without "
    "a default must be filled in.\n"
)
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
    return "\n".join([HEAD, *(part for dag in found for part in _dag(dag))])


def _dag(dag: DAG) -> Iterator[str]:
    yield f"## {dag.dag_id}\n"
    yield f"{(dag.doc_md or '').strip()}\n"
    if not dag.params:
        yield "It has no form.\n"
        return
    yield "| field | asks for | default |"
    yield "|---|---|---|"
    for name in dag.params:
        yield _row(name, dag.params.get_param(name))
    yield ""


def _row(name: str, param: Any) -> str:  # noqa: ANN401 - Airflow's, of several versions
    schema = param.schema
    shown = {value: words for value, words in (schema.get("values_display") or {}).items() if value}
    choices = "; ".join(f"`{value}`: {words}" for value, words in shown.items())
    if not choices and schema.get("enum"):
        choices = ", ".join(f"`{value}`" for value in schema["enum"] if value is not None)
    told = [f"{schema['title']}.", param.description, f"One of {choices}." if choices else None]
    default = _value(param.value) if param.has_value else ""
    return f"| `{name}` | {' '.join(filter(None, told))} | {default} |".replace("\n", " ")


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
