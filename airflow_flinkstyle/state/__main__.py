"""``python -m airflow_flinkstyle.state REQUEST``: for a caller without PySpark, such as ``flinkstyle``.

The request is a JSON object: ``root``, ``job``, ``savepoint``, ``which`` (arguments of ``savepoint_state``),
``operators`` (true for the list of operators instead), ``against`` (a later savepoint, for what changed),
``partitions`` (a number, to have the savepoint repartitioned instead), ``transform`` (to have its state
changed: ``changes``, ready-made ones as ``edits.as_data`` writes them, or ``script``; and ``dry_run``),
``convert`` (to have it moved to RocksDB), ``bootstrap`` (to have a first one made: ``script``, ``args``,
``tables`` with ``query``, ``operator``, ``state`` and ``sql`` each, ``positions``), ``holding`` (true for the
savepoints with keys that meet ``where``), ``where`` (a condition in SQL), ``limit``, and ``conf`` of Spark.
The answer is the last line of standard output, a JSON object: ``columns`` and ``rows``, or ``error``. Lines
on standard error report the progress of a change (``steps.PROGRESS_PREFIX``).
"""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import asdict
from functools import reduce
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.savepoint.manifest import KafkaPosition
from airflow_flinkstyle.state import (
    bootstrap_savepoint,
    convert_savepoint,
    repartition_savepoint,
    savepoint_operators,
    savepoint_state,
    savepoints_with,
    state_changes,
    transform_state,
)
from airflow_flinkstyle.state.bootstrap import read_table
from airflow_flinkstyle.state.edited import changes_in
from airflow_flinkstyle.state.edits import from_data
from airflow_flinkstyle.state.errors import STATE_TRANSFORM_NO_CHANGES, state_not_done
from airflow_flinkstyle.state.query_copy import open_copy
from airflow_flinkstyle.state.reader import filtered
from airflow_flinkstyle.state.steps import log_to_stderr
from airflow_flinkstyle.typed_json import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.state.edits import Given
    from airflow_flinkstyle.state.transform import Transformed


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the request asks for, or the error."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("flinkstyle savepoint state").config("spark.ui.enabled", "false")
    for name, value in request["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        if request["partitions"] is not None:
            return _repartitioned(spark, request)
        if request["holding"]:
            return _holding(spark, request, request["where"], request["which"]["query"])
        if request["convert"]:
            place = request["root"], request["job"]
            return _counts_table(
                convert_savepoint(spark, *place, request["savepoint"], request["which"]["query"])
            )
        if request["bootstrap"] is not None:
            return _bootstrapped(spark, request)
        if request["transform"] is not None and not request["transform"]["dry_run"]:
            return _transformed(spark, request)
        found = _requested(spark, request)
        if request["where"] and request["transform"] is None:
            found = filtered(found, request["where"])
        rows = found.limit(request["limit"]).collect()
        return {"columns": found.columns, "rows": [row.asDict(recursive=True) for row in rows]}
    except Exception as error:  # noqa: BLE001  # Spark's, and the script's
        kind, text = type(error).__name__, str(error)
        known = error if isinstance(error, FlinkstyleError) else state_not_done(kind, text)
        sentences = {"problem": known.problem, "state_after": known.state_after, "remedy": known.remedy}
        return {"error": {"code": known.code, **sentences}}
    finally:
        spark.stop()


def _repartitioned(spark: SparkSession, request: Mapping[str, Any]) -> dict[str, Any]:
    place = request["root"], request["job"]
    done = repartition_savepoint(spark, *place, request["partitions"], request["savepoint"])
    row = {"savepoint": done.savepoint.savepoint_id, "parent": done.savepoint.parent, "keys": done.keys}
    return {"columns": list(row), "rows": [row]}


def _transformed(spark: SparkSession, request: Mapping[str, Any]) -> dict[str, Any]:
    place = request["root"], request["job"]
    query = request["which"]["query"]
    table = _counts_table(transform_state(spark, *place, _changes(request), request["savepoint"], query))
    dropped = [one["where"] for one in request["transform"]["changes"] if one["does"] == "DropKeys"]
    if dropped and request["transform"]["look_at_others"]:
        [row] = table["rows"]
        # Also the new one, if another operator or query of it has such keys.
        row["held_by"] = [one["savepoint"] for one in _holding(spark, request, dropped[0], None)["rows"]]
        table["columns"].append("held_by")
    return table


def _holding(
    spark: SparkSession, request: Mapping[str, Any], where: str, query: str | None
) -> dict[str, Any]:
    found = savepoints_with(spark, request["root"], request["job"], where, query)
    rows = [{"savepoint": one.savepoint_id, "keys": one.keys, "why": one.why} for one in found]
    return {"columns": ["savepoint", "keys", "why"], "rows": rows}


def _bootstrapped(spark: SparkSession, request: Mapping[str, Any]) -> dict[str, Any]:
    asked = request["bootstrap"]
    tables: dict[str, dict[int, Any]] = {}
    for one in asked["tables"]:
        of_query = tables.setdefault(one["query"] or "", {})
        table = read_table(spark, one["sql"])
        if one["state"] is None:
            of_query[one["operator"]] = table
        else:
            of_query.setdefault(one["operator"], {})[one["state"]] = table
    done = bootstrap_savepoint(
        spark,
        request["root"],
        request["job"],
        asked["script"],
        tables.get("", tables),
        {source: decode(KafkaPosition, one) for source, one in asked["positions"].items()},
        asked["args"],
    )
    rows = [
        {
            "savepoint": done.savepoint.savepoint_id,
            "query": query.name,
            "batch": query.batch_id,
            "keys": sum(counts.added for counts in done.counts.get(query.name, {}).values()),
        }
        for query in done.savepoint.queries
    ]
    return {"columns": list(rows[0]), "rows": rows}


def _counts_table(done: Transformed) -> dict[str, Any]:
    made = {"savepoint": done.savepoint.savepoint_id, "parent": done.savepoint.parent}
    rows = [{**made, "operator": number, **asdict(counts)} for number, counts in done.counts.items()]
    return {"columns": list(rows[0]), "rows": rows}


def _changes(request: Mapping[str, Any]) -> dict[int, Given]:
    """Return the changes that the request has for each operator.

    Raises:
        FlinkstyleError: ``STATE_TRANSFORM`` if its script names none.
    """
    asked, operator = request["transform"], request["which"]["operator"]
    if asked["script"] is not None:
        found = runpy.run_path(asked["script"]).get("changes")
        if not isinstance(found, dict) or not found:
            raise STATE_TRANSFORM_NO_CHANGES.error(script=asked["script"])
        return found
    changes = [from_data(change) for change in asked["changes"]]
    return {operator: changes if asked["state"] is None else {asked["state"]: changes}}


def _requested(spark: SparkSession, request: Mapping[str, Any]) -> DataFrame:
    place = spark, request["root"], request["job"]
    which = request["which"]
    if request["operators"]:
        return savepoint_operators(*place, request["savepoint"], which["query"])
    if request["transform"] is not None:
        return _would_change(spark, request)
    state = savepoint_state(*place, request["savepoint"], **which)
    if request["against"] is None:
        return state
    return state_changes(state, savepoint_state(*place, request["against"], **which))


def _would_change(spark: SparkSession, request: Mapping[str, Any]) -> DataFrame:
    """Return what the changes would do; with several operators or states as JSON, by their names."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    place = request["root"], request["job"], request["savepoint"], request["which"]["query"]
    copy = open_copy(spark, *place, None, None)
    found = {
        (number, name): frame
        for number, given in sorted(_changes(request).items())
        for name, frame in changes_in(copy, number, given).items()
    }
    if [name for _, name in found] == [""]:
        [frame] = found.values()
        return frame
    shown = []
    for (number, name), frame in found.items():
        columns = [F.to_json(F.struct(column)).alias(column) for column in ("key", "before", "after")]
        which = F.lit(number).alias("operator"), F.lit(name).alias("state")
        shown.append(frame.select(*which, "change", *columns))
    return reduce(DataFrame.union, shown)


if __name__ == "__main__":
    log_to_stderr()
    print(json.dumps(answer(json.loads(sys.argv[1])), default=str))  # noqa: T201  # its purpose
