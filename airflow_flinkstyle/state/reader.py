"""Read a savepoint's state with Spark's own state reader (``statestore``, ``state-metadata``; Spark 4.0)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal

from airflow_flinkstyle.state.errors import (
    STATE_READ_STATELESS,
    state_read_bad_condition,
    state_read_operator_unknown,
    state_read_side_needed,
    state_read_variable_needed,
)
from airflow_flinkstyle.state.query_copy import LATEST, open_copy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from airflow_flinkstyle.state.query_copy import QueryCopy
    from airflow_flinkstyle.storage.s3_settings import S3Settings

_JOIN: Final = "symmetricHashJoin"


def savepoint_state(
    spark: SparkSession,
    root: str,
    job: str,
    savepoint: str = LATEST,
    query: str | None = None,
    operator: int = 0,
    *,
    store: str | None = None,
    join_side: Literal["left", "right"] | None = None,
    variable: str | None = None,
    timers: bool = False,
    scratch: str | None = None,
    s3: S3Settings | None = None,
) -> DataFrame:
    """Return keys and values of one stateful operator, as they were at the savepoint.

    Args:
        spark: A session of Spark 4.0 or newer.
        root: Savepoint root: ``s3://bucket/prefix``, ``file:///path`` or ``/path``.
        job: The job's name.
        savepoint: Its id, or ``latest``.
        query: The query's name; may be left out if the savepoint has one query.
        operator: Number of the operator, from 0; ``savepoint_operators`` lists them.
        store: One of an operator's stores by name, as Spark keeps it; a join has four.
        join_side: For a join: the rows that it keeps of this side.
        variable: For ``transformWithState``: the state variable.
        timers: For ``transformWithState``: its registered timers instead of a variable.
        scratch: Location to copy the query's files to, reached by driver and executors; files of the same
            savepoint that are there are used again, and all stay there. None for a temporary folder of this
            machine, which is deleted when this process ends.
        s3: Endpoint and keys for locations on S3; None for boto3's standard environment variables. Spark
            reads ``scratch`` with its own settings.

    Returns:
        A DataFrame with the columns ``key``, ``value`` and ``partition_id`` (of a map variable ``key``,
        ``user_map_key``, ``user_map_value``; of a list ``key``, ``list_element``), as the version of Spark
        has them.

    Raises:
        FlinkstyleError: ``STATE_READ`` if the query, operator, side or variable is not one of the
            savepoint's, or this Spark cannot read state.
        SavepointMissingError: If there is no such savepoint.
    """
    copied = open_copy(spark, root, job, savepoint, query, scratch, s3)
    return copied.load(operator, _which_state(copied, operator, store, join_side, variable, timers=timers))


def savepoint_operators(
    spark: SparkSession,
    root: str,
    job: str,
    savepoint: str = LATEST,
    query: str | None = None,
    *,
    scratch: str | None = None,
    s3: S3Settings | None = None,
) -> DataFrame:
    """Return a query's stateful operators: number, name, stores, partitions; arguments as above."""
    return open_copy(spark, root, job, savepoint, query, scratch, s3).operators()


def _which_state(
    copied: QueryCopy,
    operator: int,
    store: str | None,
    join_side: str | None,
    variable: str | None,
    *,
    timers: bool,
) -> dict[str, str]:
    """Return the reader's options for one of an operator's states."""
    if not copied.query.has_state:
        raise STATE_READ_STATELESS.error(query=copied.query.name, savepoint_id=copied.savepoint_id)
    rows = copied.operators().collect()  # none where Spark 3.5 wrote the state
    mine = [row for row in rows if row["operatorId"] == operator]
    if rows and not mine:
        known = sorted({f"{row['operatorId']} ({row['operatorName']})" for row in rows})
        raise state_read_operator_unknown(operator, copied.query.name, known)
    if store is not None:
        return {"storeName": store}
    if join_side is not None:
        return {"joinSide": join_side}
    if mine and mine[0]["operatorName"] == _JOIN:
        stores = sorted(row["stateStoreName"] for row in mine)
        raise state_read_side_needed(copied.query.name, operator, stores)
    variables = variables_of(mine[0]) if mine else []
    if timers:
        return {"readRegisteredTimers": "true"}
    if variables and variable not in variables:
        raise state_read_variable_needed(copied.query.name, operator, variable, variables)
    return {"stateVarName": variable} if variable is not None else {}


def variables_of(operator: Row) -> list[str]:
    """Return the state variables of a ``transformWithState``; none for any other operator."""
    properties = json.loads(operator["operatorProperties"] or "{}")
    return [variable["stateName"] for variable in properties.get("stateVariables", ())]


def _has_timers(operator: Row) -> bool:
    """Return whether a ``transformWithState`` may have registered timers."""
    properties = json.loads(operator["operatorProperties"] or "{}")
    return str(properties.get("timeMode", "NoTime")) != "NoTime"


def filtered(state: DataFrame, where: str) -> DataFrame:
    """Return the rows of a state that meet a condition in SQL.

    Raises:
        FlinkstyleError: ``STATE_READ`` if it is not valid for this state.
    """
    from pyspark.errors import AnalysisException  # the error for a text that cannot be parsed is one of these

    try:
        return state.where(where)
    except AnalysisException as error:
        raise state_read_bad_condition(where, str(error), state.schema.simpleString()) from error


def every_state(copied: QueryCopy) -> list[tuple[int, dict[str, str]]]:
    """Return each state of each operator: its number, and the reader's options for it."""
    found: list[tuple[int, dict[str, str]]] = []
    for row in copied.operators().dropDuplicates(["operatorId"]).orderBy("operatorId").collect():
        number = int(row["operatorId"])
        if row["operatorName"] == _JOIN:
            found += [(number, {"joinSide": side}) for side in ("left", "right")]
        elif variables := variables_of(row):
            found += [(number, {"stateVarName": name}) for name in variables]
            if _has_timers(row):
                found.append((number, {"readRegisteredTimers": "true"}))
        else:
            found.append((number, {}))
    return found
