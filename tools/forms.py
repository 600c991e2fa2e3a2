"""``python -m tools.forms``: write docs/forms.md, every DAG of dags/ with the fields of its form."""

from __future__ import annotations

import os
import runpy
import sys
from typing import TYPE_CHECKING, Any

from tools.common import ROOT
from tools.said_once import said_often

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import DAG

PAGE = ROOT / "docs" / "forms.md"
DAGS = ROOT / "dags"
HEAD = (
    "# The DAGs and their forms\n\n"
    "Written by `python -m tools.forms` from the DAGs themselves. Each DAG is a file in "
    "[`dags/`](../dags/take_savepoint.py) and a function of `airflow_flinkstyle.dags` ([a DAG of your own]"
    "(start.md#a-dag-of-your-own-for-a-job)); a field's name is the argument that answers it, in brackets "
    "its default; its other choices. One without a default must be filled in. The form itself says more.\n"
)
_ALWAYS = ("job", "flinkstyle_conn_id")
"""Only a form that lacks one of these says so."""
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
    return laid_out(
        {dag.dag_id: ((dag.doc_md or "").strip().partition("\n\n")[0], _fields(dag)) for dag in found}
    )


def laid_out(forms: Mapping[str, tuple[str, Mapping[str, str]]]) -> str:
    """Return the page: DAG -> its first paragraph, and its fields' lines by name."""
    usual, shared = said_often(field for _, fields in forms.values() for field in fields.items())
    always = " and ".join(f"`{name}`" for name in _ALWAYS)
    lines = [HEAD, f"Every form has {always}, unless it says *without*. Fields of several forms:\n"]
    for name, line in sorted(shared, key=lambda field: field[1]):
        having = [dag for dag, (_, fields) in forms.items() if fields.get(name) == line]
        head, _, told = line.partition(": ")
        lines.append(line if usual[name] == line else f"{head} of {', '.join(having)}: {told}")
    lines.append("")
    for dag, (words, fields) in forms.items():
        lines += [f"## {dag}\n", f"{words}\n"]
        lines += [line for name, line in fields.items() if (name, line) not in shared]
        also = [f"`{name}`" for name in fields if (name, fields[name]) in shared and name not in _ALWAYS]
        without = [f"`{name}`" for name in _ALWAYS if name not in fields]
        also += [f"without {', '.join(without)}"] if without and fields else []
        lines += [f"- {', '.join(also)}"] if also else []
        lines.append("" if fields else "It has no form.\n")
    return "\n".join(lines)


def _fields(dag: DAG) -> dict[str, str]:
    return {name: _line(name, dag.params.get_param(name)) for name in dag.params}


def _line(name: str, param: Any) -> str:  # noqa: ANN401 - Airflow's, of several versions
    schema = param.schema
    default = _value(param.value) if param.has_value else ""
    values = [f"`{value}`" for value in schema.get("values_display") or schema.get("enum") or () if value]
    others = ", ".join(value for value in values if value != default)
    brackets = f" ({'; '.join(filter(None, (default, others)))})" if default or others else ""
    title = schema["title"] if schema["title"].lower() != name.replace("_", " ") else None
    told = [title and f"{title}.", param.description]
    words = " ".join(filter(None, told)).replace("\n", " ")
    return f"- `{name}`{brackets}: {words}" if words else f"- `{name}`{brackets}"


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
