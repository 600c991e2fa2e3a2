"""``python state_main.py QUESTION.json ANSWER.json``: the state in checkpoints, by Spark's own reader.

The question is a list of checkpoints; the answer has for each, per operator and store, its rows as sorted
text, or None where the checkpoint has no state.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def main() -> None:
    """Answer."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    _ = spark.streams  # the reader looks for the coordinator that only this brings up
    asked = json.loads(Path(sys.argv[1]).read_text())
    answer = [read_state(spark, checkpoint) for checkpoint in asked]
    Path(sys.argv[2]).write_text(json.dumps(answer))


def read_state(spark: SparkSession, checkpoint: str) -> dict[str, list[str] | None] | None:
    """Return the newest committed state; None for a store that cannot be read."""
    if not (Path(checkpoint) / "state").is_dir():
        return None
    found = spark.read.format("state-metadata").load(checkpoint).collect()
    answer: dict[str, list[str] | None] = {}
    for operator, name in sorted({(row.operatorId, row.operatorName) for row in found}):
        for option in _options(name):
            store = f"{operator} {name} {' '.join(option.values())}".strip()
            reader = spark.read.format("statestore").options(operatorId=operator, **option)
            try:
                answer[store] = _rows(reader.load(checkpoint))
            except Exception as error:  # noqa: BLE001  # some of a join's stores Spark itself cannot read
                print("Not read:", checkpoint, store, type(error).__name__)  # noqa: T201  # into the log
                answer[store] = None
    return answer


def _rows(frame: DataFrame) -> list[str]:
    columns = ", ".join(column for column in frame.columns if column != "partition_id")
    return sorted(row[0] for row in frame.selectExpr(f"to_json(struct({columns}))").collect())


def _options(operator: str) -> list[dict[str, str]]:
    if operator == "symmetricHashJoin":
        return [{"joinSide": "left"}, {"joinSide": "right"}]
    if operator.startswith("transformWithState"):
        return [{"stateVarName": "totals"}]
    return [{}]


if __name__ == "__main__":
    main()
