"""What a compared script writes past the sinks of its queries, as far as it does so through PySpark."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.agent.core.errors import COMPARED_WRITES
from airflow_flinkstyle.agent.spark.agent import replace
from airflow_flinkstyle.protocol.comparison_records import COMPARE, Compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from airflow_flinkstyle.agent.spark.untyped import Java, PySpark

_WRITER: Final = (
    *("save", "saveAsTable", "insertInto", "jdbc"),
    *("parquet", "json", "csv", "orc", "text", "xml"),
)
_TABLE_WRITER: Final = ("create", "replace", "createOrReplace", "append", "overwrite", "overwritePartitions")
_STATEMENTS: Final = (
    *("InsertIntoStatement", "InsertIntoDir", "MergeIntoTable", "UpdateTable", "DeleteFromTable"),
    *("CreateTableAsSelect", "ReplaceTableAsSelect", "ReplaceTable", "DropTable", "TruncateTable"),
    *("LoadData", "DropPartitions", "TruncatePartition", "DropNamespace", "CompoundBody"),
)
"""Spark's names of parsed statements that write or remove rows; ``CREATE TABLE IF NOT EXISTS`` may run."""
log = logging.getLogger(__name__)


def refuse_writes() -> None:
    """Refuse what a script writes by PySpark's writers and by SQL, in a session that is to be compared.

    What it writes by other means, like a client of its own or a command of Delta's, is not noticed.
    """
    from pyspark.sql import SparkSession
    from pyspark.sql.readwriter import DataFrameWriter, DataFrameWriterV2

    for cls, names in ((DataFrameWriter, _WRITER), (DataFrameWriterV2, _TABLE_WRITER)):
        for name in names:
            if hasattr(cls, name):  # XML came with Spark 4
                _refuse(cls, name)
    with suppress(ImportError):  # and so did merges
        from pyspark.sql.merge import MergeIntoWriter

        _refuse(MergeIntoWriter, "merge")
    replace(SparkSession, "sql", _unless_it_writes)


def _refuse(cls: PySpark, name: str) -> None:
    def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: PySpark, *args: PySpark, **options: PySpark) -> PySpark:
            _require_allowed(self._spark, f"{cls.__name__}.{name}")
            return original(self, *args, **options)

        return call

    replace(cls, name, wrapper)


def _unless_it_writes(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: PySpark, sqlQuery: str, *args: PySpark, **options: PySpark) -> PySpark:
        if statement := _statement(self, sqlQuery):
            _require_allowed(self, f"an SQL statement ({statement})")
        return original(self, sqlQuery, *args, **options)

    return call


def _require_allowed(spark: SparkSession, what: str) -> None:
    asked = Compare.of_setting(spark.conf.get(COMPARE, "") or "")
    if asked is not None and not asked.allow_writes:
        raise COMPARED_WRITES.error(what=what)


def _statement(spark: PySpark, text: str) -> str:
    """Return Spark's name of the statement that writes; empty if none does.

    Also below a ``WITH``, and where one query inserts into several tables. A script of several statements
    (``CompoundBody``) counts as one that writes. One that does not parse is left to Spark, which raises an
    error itself.
    """
    try:
        plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(text)  # noqa: SLF001
        return next((name for name in _names(plan) if name in _STATEMENTS), "")
    except Exception:
        log.debug("Spark does not parse a statement of the script", exc_info=True)
        return ""


def _names(plan: Java) -> Iterator[str]:
    """Yield the names of a parsed plan and of all that is in it."""
    yield str(plan.getClass().getSimpleName())
    children = plan.children()
    for number in range(children.size()):
        yield from _names(children.apply(number))
