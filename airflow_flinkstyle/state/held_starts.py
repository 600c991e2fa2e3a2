"""A script's queries, each run once by Spark for a batch that reads nothing.

The script runs with its starts held. Of each plan Spark runs batch 0, which is planned here: it ends where
its sources begin, and its sink is ``noop``. That writes the checkpoint of the plan: logs, schemas and
metadata of the state, the sources' positions, and no output.
"""

from __future__ import annotations

import json
import runpy
import sys
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.savepoint.compat import PROVIDER, ROCKSDB_CLASS
from airflow_flinkstyle.spark_versions import source_name, streaming_leaves
from airflow_flinkstyle.state.errors import (
    BOOTSTRAP_NAMES,
    BOOTSTRAP_NO_QUERY,
    BOOTSTRAP_NO_SOURCE,
    BOOTSTRAP_PROVIDER,
    BOOTSTRAP_READ,
    BOOTSTRAP_SCRIPT,
)
from airflow_flinkstyle.storage.keys import hadoop_location
from airflow_flinkstyle.types import ONLY_QUERY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition
    from airflow_flinkstyle.state.scratch import OpenPlace

    _Method = tuple[Any, str, Any]
    """A class, the name of a method, and the method."""

_UNREAD: Final = "-"
"""A source that has no position yet: it begins where the script says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBatch:
    """What batch 0 of a query of the script has written."""

    location: str
    """Its checkpoint, with batch 0."""
    positions: Mapping[str, KafkaPosition]
    """Those that were chosen, by source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldStarts:
    """Replaces the start of a query while a script runs."""

    place: str
    """Location for the checkpoints, reached by driver and executors."""
    open_place: OpenPlace
    positions: Mapping[str, KafkaPosition]
    """By source, with its query in front or without: ``totals/0``, ``0``."""
    found: dict[str, FirstBatch] = field(default_factory=dict)
    """By query, in the order of their starts."""
    sources: set[str] = field(default_factory=set)
    """All sources of the script, with their query in front."""

    def run(self, script: str, args: Sequence[str]) -> None:
        """Run the script until its end.

        Raises:
            FlinkstyleError: ``BOOTSTRAP`` if it fails, starts no query, or lacks the source of a
                position.
        """
        try:
            with _starting_by(self._start), _as_main(script, args):
                runpy.run_path(script, run_name="__main__")
        except FlinkstyleError:
            raise
        except SystemExit as end:
            if end.code not in (None, 0):
                why = f"it left with exit code {end.code}."
                raise BOOTSTRAP_SCRIPT.error(script=script, why=why) from end
        except Exception as error:  # the script is a user's: it may raise anything
            why = f"{type(error).__name__}: {error}"
            raise BOOTSTRAP_SCRIPT.error(script=script, why=why) from error
        if not self.found:
            raise BOOTSTRAP_NO_QUERY.error(script=script)
        for name in self.positions:
            if not any(name in (source, source.partition("/")[2]) for source in self.sources):
                raise BOOTSTRAP_NO_SOURCE.error(name=name, known=", ".join(sorted(self.sources)))

    def _start(self, writer: DataStreamWriter, name: str) -> StreamingQuery:
        """Run batch 0 of a query, and return it to the script: a query that has ended."""
        from pyspark.sql.streaming import StreamingQuery

        if name in self.found:
            raise BOOTSTRAP_NAMES.error(name=name)
        frame: DataFrame = writer._df  # noqa: SLF001
        location = f"{self.place}/first/{name}"
        log, keys = self._planned(frame, name)
        self.sources.update(f"{name}/{key}" for key in keys)
        chosen = {key: position for key in keys if (position := self._chosen(name, key)) is not None}
        raw = {key: offset_log.kafka_offset(position.offsets) for key, position in chosen.items()}
        store = self.open_place(location)
        store.write("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        for key, offset in raw.items():  # where Kafka's source records its start
            store.write(f"sources/{key}/0", f"\0v1\n{offset}".encode())
        log = log.with_sources({key: raw.get(key, _UNREAD) for key in keys})
        store.write("offsets/0", log.render().encode())
        query: StreamingQuery = StreamingQuery(_run_once(frame.sparkSession, _java(writer), location))
        if rows := sum(progress["numInputRows"] for progress in query.recentProgress):
            raise BOOTSTRAP_READ.error(query=name, rows=rows)
        self.found[name] = FirstBatch(location=location, positions=chosen)
        return query

    def _planned(self, frame: DataFrame, name: str) -> tuple[OffsetLog, list[str]]:
        """Return a log as Spark writes it in this session, and the sources of the plan as it names them.

        Spark has no public list of the settings that a log pins, so another query writes one. Spark takes
        settings that a log lacks as they were before it had them.
        """
        session = frame.sparkSession
        if (provider := str(session.conf.get(PROVIDER, ""))) not in ("", ROCKSDB_CLASS):
            raise BOOTSTRAP_PROVIDER.error(query=name, provider=provider)
        reader = session.readStream
        if str(session.conf.get(offset_log.SOURCE_EVOLUTION, "false")).lower() == "true":
            reader = reader.name("any")
        rows = reader.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        location = f"{self.place}/settings/{name}"
        _run_once(session, rows._jdf.writeStream(), location)  # noqa: SLF001
        log = offset_log.parse(self.open_place(location).read("offsets/0").decode())
        log = replace(log.with_confs({**log.confs, PROVIDER: ROCKSDB_CLASS}), sources={})
        named = [source_name(leaf) if log.version > 1 else None for leaf in streaming_leaves(frame)]
        return log, [given or str(place) for place, given in enumerate(named)]

    def _chosen(self, query: str, source: str) -> KafkaPosition | None:
        return self.positions.get(f"{query}/{source}", self.positions.get(source))


def _run_once(session: SparkSession, writer: Any, location: str) -> Any:  # noqa: ANN401 - Java's
    """Let Spark run one batch of a query without output, and return it once it has ended.

    Raises:
        StreamingQueryException: If it fails.
    """
    from pyspark.sql.streaming import StreamingQuery

    jvm: Any = session.sparkContext._jvm  # noqa: SLF001
    once = jvm.org.apache.spark.sql.streaming.Trigger.Once()
    writer = writer.format("noop").trigger(once).option("checkpointLocation", hadoop_location(location))
    started = writer.start()
    StreamingQuery(started).awaitTermination()
    return started


def _java(writer: DataStreamWriter) -> Any:  # noqa: ANN401 - Java's
    return writer._jwrite  # noqa: SLF001


@contextmanager
def _starting_by(start: Callable[[DataStreamWriter, str], StreamingQuery]) -> Iterator[None]:
    """Let ``start`` run for each start of a script, and let its end not stop Spark."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    original_query_name = DataStreamWriter.queryName

    def named(self: Any, queryName: str) -> Any:  # noqa: ANN401 - PySpark's
        self._flinkstyle_name = queryName
        return original_query_name(self, queryName)

    def started(
        self: Any,  # noqa: ANN401
        target: str | None = None,
        format: str | None = None,
        outputMode: str | None = None,
        partitionBy: Any = None,  # noqa: ANN401
        queryName: str | None = None,
        **options: Any,
    ) -> StreamingQuery:
        if outputMode is not None:
            self.outputMode(outputMode)
        if queryName is not None:
            self.queryName(queryName)
        return start(self, getattr(self, "_flinkstyle_name", ONLY_QUERY))

    def do_nothing(*_: object) -> None:
        """Leave the session to the caller that runs the script."""

    replaced: list[_Method] = [(DataStreamWriter, "queryName", named)]
    replaced += [(DataStreamWriter, name, started) for name in ("start", "toTable")]
    replaced += [(cls, "stop", do_nothing) for cls in (SparkSession, SparkContext)]
    before = [(cls, name, getattr(cls, name)) for cls, name, _ in replaced]
    _set(replaced)
    try:
        yield
    finally:
        _set(before)


def _set(methods: Sequence[_Method]) -> None:
    for cls, name, method in methods:
        setattr(cls, name, method)


@contextmanager
def _as_main(script: str, args: Sequence[str]) -> Iterator[None]:
    """Let a script find its arguments and the modules beside it, as Python does."""
    argv, path = list(sys.argv), list(sys.path)
    sys.argv = [script, *args]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        yield
    finally:
        sys.argv[:], sys.path[:] = argv, path
