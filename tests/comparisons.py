"""What a comparison of two versions may have found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow_flinkstyle.protocol.comparison_records import (
    ComparedQuery,
    ComparedState,
    Comparison,
    ShownRow,
)
from airflow_flinkstyle.types import Generation, Incarnation

DIFFERS = ComparedQuery(
    batches=4,
    input_rows=4000,
    output_mode="append",
    old_rows=4000,
    new_rows=4000,
    equal=3998,
    changed=2,
    changed_columns={"price": 2},
    first_batch=17,
    samples=(ShownRow(kind="changed", old='{"id":7,"price":1.25}', new='{"id":7,"price":1}'),),
    states=(ComparedState(operator=0, changed=1, samples=('{"change":"changed","key":{"k":7}}',)),),
    untested=("No column loaded_at, which was to be ignored.",),
)
SAME = replace(DIFFERS, equal=4000, changed=0, changed_columns={}, samples=(), states=(), first_batch=None)


def a_comparison(**changes: Any) -> Comparison:
    """Return one whose query ``lines`` differs and whose ``totals`` are the same."""
    values: dict[str, Any] = {
        "incarnation": Incarnation(1),
        "savepoint_id": "sp-1",
        "old": Generation(2),
        "new": Generation(3),
        "queries": {"totals": SAME, "lines": DIFFERS},
        "seconds": 1.5,
        "ended_at_ms": 1,
    }
    return Comparison(**{**values, **changes})
