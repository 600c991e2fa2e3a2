"""Which sources a query reads, from its plan, before it is started.

The offset log lists sources in the order of the plan's streaming leaves, each leaf a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.spark_versions import as_dict, source_name, streaming_leaves

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.spark.untyped import Java, PySpark


def sources_of(df: PySpark) -> tuple[StreamingSource, ...]:
    """Return the streaming sources of a data frame, in the offset log's order."""
    return tuple(_source(position, leaf) for position, leaf in enumerate(streaming_leaves(df)))


def _source(position: int, leaf: Java) -> StreamingSource:
    detail = ""
    if leaf.getClass().getSimpleName() == "StreamingRelationV2":
        options = dict(leaf.extraOptions().asCaseSensitiveMap())
        provider = leaf.sourceName()
        detail = leaf.identifier().get().toString() if leaf.identifier().isDefined() else ""
    elif leaf.getClass().getSimpleName() == "StreamingRelation":
        options = as_dict(leaf.dataSource().options())
        provider, detail = leaf.sourceName(), leaf.dataSource().className()
    else:  # a source made by a test or a library, without options
        options, provider = {}, leaf.nodeName()
    return StreamingSource(
        position=position, name=source_name(leaf), provider=provider, options=options, detail=detail
    )
