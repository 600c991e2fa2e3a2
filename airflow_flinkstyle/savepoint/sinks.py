"""Sinks that remember which batches they have seen. Pure.

Spark's file sink keeps the newest batch id beside its output and leaves out every batch up to it, whichever
query it comes from; Delta and Iceberg do the same per query id. All do so silently: a restored savepoint
whose batch ids are used again loses rows. Only the author knows what ``foreachBatch``, ``foreach`` and sinks
unknown here do with a batch id: Delta's recipe for idempotent writes leaves out those it knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from airflow_flinkstyle.checkpoint.table_position import TableFormat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_flinkstyle.protocol.query_records import Sinks
    from airflow_flinkstyle.savepoint.manifest import QuerySnapshot

FILE_SINKS: Final = frozenset({"avro", "csv", "json", "orc", "parquet", "text", "xml"})
TABLE_SINKS: Final = frozenset(get_args(TableFormat))
WRITE_NOWHERE: Final = frozenset({"console", "memory", "noop"})
"""Sinks whose output is not kept."""
FORGETFUL: Final = WRITE_NOWHERE | {"kafka"}
"""Sinks that write every batch that they are given."""
SINK_LOG: Final = "_spark_metadata"
"""Folder in the output path of a file sink: one file for each batch, the tenth ones ``.compact``."""


def remembers_batches(sink: str | None) -> bool:
    """Tell whether the sink, by Spark's name of it, silently leaves out batch ids that it knows."""
    return sink in FILE_SINKS or sink in TABLE_SINKS


def table_format(sink: str | None) -> TableFormat | None:
    """Return the format of a sink that is a table with versions; None for other sinks."""
    return next((one for one in get_args(TableFormat) if one == sink), None)


def may_remember(sink: str | None) -> bool:
    """Tell whether only the sink's author knows if it leaves out batch ids that it has seen."""
    return sink is not None and not remembers_batches(sink) and sink not in FORGETFUL


def may_skip(sink: str | None, written: Sinks | None) -> bool:
    """Tell whether batch ids used again are, or may be, left out, by what a run reported of a query.

    Only the agent, which sees the script, can judge a ``foreach``, which may not get ids, and a function
    with a transactional sink in it.
    """
    if remembers_batches(sink):
        return True
    is_plain = written is not None and not written.lineages
    return may_remember(sink) and sink != "foreach" and is_plain


def remembering(queries: Iterable[QuerySnapshot]) -> list[str]:
    """Return the sinks that would leave out batch ids used again, for messages."""
    return [f"{query.sink} of query {query.name}" for query in queries if remembers_batches(query.sink)]


def newest_logged(names: Iterable[str]) -> int | None:
    """Return the newest batch that a file sink's log names; None if it names none."""
    numbers = (name.removesuffix(".compact") for name in names)
    return max((int(number) for number in numbers if number.isascii() and number.isdigit()), default=None)
