"""The query that a batch belongs to, seen from its ``foreachBatch``: the checkpoint and the Kafka sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.sinks.errors import SINK_CONFIG
from airflow_flinkstyle.spark_versions import checkpoint_files, source_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from airflow_flinkstyle.spark_versions import Java


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSource:
    """A Kafka source of the query."""

    position: int
    """Among all sources of the plan; names it in the offset log."""
    name: str | None
    """Given with ``.name()``; names it in an offset log that knows names."""
    options: Mapping[str, str]
    """As the script set them, with names in lower case."""


class RunningQuery:
    """A query that runs in this driver."""

    def __init__(self, session: SparkSession, query_id: str) -> None:
        """Look the query up.

        Raises:
            FlinkstyleError: ``SINK_CONFIG`` if Spark does not know it: the batch is not called by a
                streaming query.
        """
        self._jvm: Java = session.sparkContext._jvm  # noqa: SLF001
        self._conf: Java = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
        active: Java = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001
        self._query: Java = active.get(self._jvm.java.util.UUID.fromString(query_id))
        if self._query is None:
            raise SINK_CONFIG.with_text(
                f"Query {query_id} does not run in this driver.",
                state_after="Nothing was written.",
                remedy="Let Spark call foreach_batch; else materialise and commit_offsets cannot be used.",
            )
        self.checkpoint = str(self._query.resolvedCheckpointRoot()).rstrip("/")

    def planned(self, batch_id: int) -> str:
        """Return the entry of a batch in the offset log, as it is there."""
        return self.read(f"offsets/{batch_id}") or ""

    def kafka_sources(self) -> list[KafkaSource]:
        """Return the sources that read Kafka."""
        leaves = self._query.analyzedPlan().collectLeaves()
        streaming = [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]
        return [
            _source(position, leaf)
            for position, leaf in enumerate(streaming)
            if leaf.getClass().getSimpleName() == "StreamingRelationV2" and leaf.sourceName() == "kafka"
        ]

    def read(self, name: str) -> str | None:
        """Return a file of the checkpoint; None if it does not exist."""
        path, files = self._open(name)
        if not files.exists(path):
            return None
        stream = files.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def create(self, name: str, content: str) -> None:
        """Create a file of the checkpoint as a whole; leave it as it is if it exists by then."""
        path, files = self._open(name)
        files.mkdirs(path.getParent())
        stream = checkpoint_files(self._jvm, path.getParent(), self._conf).createAtomic(path, False)
        stream.write(content.encode())
        try:
            stream.close()
        except Exception:
            if not files.exists(path):
                raise

    def folders(self, name: str) -> list[str]:
        """Return the names of the folders in one of the checkpoint; empty if it does not exist."""
        path, files = self._open(name)
        if not files.exists(path):
            return []
        return [str(status.getPath().getName()) for status in files.listStatus(path)]

    def delete(self, name: str) -> None:
        """Delete a folder of the checkpoint with all that is in it."""
        path, files = self._open(name)
        files.delete(path, True)

    def _open(self, name: str) -> tuple[Java, Java]:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self.checkpoint}/{name}")
        return path, path.getFileSystem(self._conf)


def _source(position: int, leaf: Java) -> KafkaSource:
    options = dict(leaf.extraOptions().asCaseSensitiveMap())
    return KafkaSource(
        position=position,
        name=source_name(leaf),
        options={key.lower(): value for key, value in options.items()},
    )
