"""Which sources a query reads, from its plan, before it is started.

The offset log lists sources in the order of the plan's streaming leaves, each leaf a line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.spark_versions import as_dict, source_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.agent.jvm.untyped import Java, PySpark
    from airflow_flinkstyle.kafka.cluster import ClusterView


_KAFKA = frozenset({"kafka", "org.apache.spark.sql.kafka010.kafkasourceprovider"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingSource:
    """One streaming source of a query."""

    position: int
    """In the plan; the line in an offset log v1."""
    name: str | None
    """Given with ``.name()`` (Spark 4.2); the key in an offset log v2."""
    provider: str
    """The format it was loaded with."""
    options: Mapping[str, str]
    """As Spark will use them, overrides included."""
    detail: str = ""
    """What tells it apart beside its options: the format of files, a table's name in a catalog."""

    @property
    def is_kafka(self) -> bool:
        """Whether it is Spark's own Kafka source, so that its log must be guarded.

        By its provider: other connectors have names, and offsets, that only look like it.
        """
        return self.provider.lower() in _KAFKA

    @property
    def follows_pattern(self) -> bool:
        """Whether topics come and go by themselves."""
        return self.option("subscribePattern") is not None

    @property
    def accepts_loss(self) -> bool:
        """Whether the script lets Spark leave out what is deleted before it is read."""
        return (self.option("failOnDataLoss") or "").lower() == "false"

    def option(self, name: str) -> str | None:
        """Return an option, whatever its case; Spark ignores it too."""
        wanted = name.lower()
        return next((value for key, value in self.options.items() if key.lower() == wanted), None)

    def key(self, log_version: int) -> str:
        """Return how an offset log of this version names the source."""
        return self.name if log_version > 1 and self.name else str(self.position)


Describe = Callable[[StreamingSource], "ClusterView"]
"""Looks at the Kafka cluster of a source: with exactly the partitions that it subscribes to."""


def sources_of(df: PySpark) -> tuple[StreamingSource, ...]:
    """Return the streaming sources of a data frame, in the offset log's order."""
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001
    streaming = [leaf for leaf in (leaves.apply(i) for i in range(leaves.size())) if leaf.isStreaming()]
    return tuple(_source(position, leaf) for position, leaf in enumerate(streaming))


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
