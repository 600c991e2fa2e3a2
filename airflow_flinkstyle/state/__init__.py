"""A savepoint's state as a DataFrame: keys and values of each stateful operator, read by Spark's own reader.

Runs where PySpark 4.0 or newer is: a notebook, a script, ``flinkstyle savepoint state``. It reads a copy that
is restored for it, so neither the job nor the savepoint is touched. Nothing here starts a query.
"""

from airflow_flinkstyle.state.bootstrap import bootstrap_savepoint
from airflow_flinkstyle.state.changes import state_changes
from airflow_flinkstyle.state.edits import (
    AddColumn,
    DropColumn,
    DropKeys,
    DropOperatorState,
    FromTable,
    NewSchema,
    RenameColumn,
    SetValues,
    WidenColumn,
)
from airflow_flinkstyle.state.holding import savepoints_with
from airflow_flinkstyle.state.reader import savepoint_operators, savepoint_state
from airflow_flinkstyle.state.repartition import repartition_savepoint
from airflow_flinkstyle.state.transform import convert_savepoint, transform_state

__all__ = [
    "AddColumn",
    "DropColumn",
    "DropKeys",
    "DropOperatorState",
    "FromTable",
    "NewSchema",
    "RenameColumn",
    "SetValues",
    "WidenColumn",
    "bootstrap_savepoint",
    "convert_savepoint",
    "repartition_savepoint",
    "savepoint_operators",
    "savepoint_state",
    "savepoints_with",
    "state_changes",
    "transform_state",
]
