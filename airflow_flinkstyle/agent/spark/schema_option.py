"""Delta's option ``schemaTrackingLocation`` in the plan of a query that is about to start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.agent.core.errors import UnsupportedModeError
from airflow_flinkstyle.agent.core.stream_options import SCHEMA_OPTIONS, schema_locations
from airflow_flinkstyle.agent.spark.sources import sources_of

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.spark import StreamingSource
    from airflow_flinkstyle.agent.spark.untyped import Java, PySpark

_FIELDS: Final = ("options", "caseInsensitiveOptions")
"""Of Spark's ``DataSource``: what is shown and checked, and what the source is made with."""


def move_schema_location(df: PySpark, source: StreamingSource, location: str) -> None:
    """Let one source of a data frame follow its schema elsewhere.

    A data frame does not change, and by the time that its query has a name it is too late to make another:
    the writer holds it. So the options are replaced in the description from which Spark makes the source.

    Raises:
        UnsupportedModeError: If Spark has no such description of the source.
    """
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001
    streaming = [leaf for leaf in (leaves.apply(i) for i in range(leaves.size())) if leaf.isStreaming()]
    leaf = streaming[source.position]
    if leaf.getClass().getSimpleName() != "StreamingRelation":
        raise UnsupportedModeError.named(
            f"schemaTrackingLocation with a source that Spark makes of {leaf.getClass().getSimpleName()}",
            "Read the table by its path, with format('delta').",
        )
    described = leaf.dataSource()
    for name in _FIELDS:
        _replace(described, name, location)
    (moved,) = (one for one in sources_of(df) if one.position == source.position)
    if set(schema_locations(moved.options, moved.provider).values()) != {location}:
        raise RuntimeError(f"Spark {df.sparkSession.version} did not take another schemaTrackingLocation.")


def _replace(described: Java, name: str, location: str) -> None:
    field = described.getClass().getDeclaredField(name)
    field.setAccessible(True)
    options = field.get(described)
    keys = options.keySet().iterator()
    names = []
    while keys.hasNext():
        names.append(keys.next())
    for key in names:
        if key.lower() in SCHEMA_OPTIONS:
            options = options.updated(key, location)
    field.set(described, options)
