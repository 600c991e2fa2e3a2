"""The input of a script, the same rows for every source, added part by part."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from testbed.differential.spec import ScriptSpec
    from testbed.kafka import Broker

PARTS = 3
FILES_PER_PART, ROWS_PER_FILE = 2, 4
FILES = PARTS * FILES_PER_PART
_BEGIN_S = 1_767_225_600
"""2026-01-01, the first row's event time; each row is a minute later."""
_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One row of an input."""

    id: int
    k: int
    v: int
    ts_s: int

    def to_json(self) -> str:
        """Render as files and Kafka hold it."""
        ts = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.ts_s))
        return json.dumps({"id": self.id, "k": self.k, "v": self.v, "ts": ts})


def rows_of(file: int, *, salt: int = 0) -> list[Row]:
    """Return the rows of a file; its first one was in the file before already, delivered twice."""
    first = file * ROWS_PER_FILE
    ids = [first - 1] * (file > 0) + list(range(first, first + ROWS_PER_FILE))
    return [Row(id, id % 3, 7 * id + salt, _BEGIN_S + 60 * id) for id in ids]


@dataclass(slots=True, kw_only=True)
class Feed:
    """Brings a script's inputs to where it reads them."""

    spec: ScriptSpec
    folder: Path
    broker: Broker
    topics: str
    """What the topics' names begin with."""
    parts: int = 0
    """That were added so far."""
    _producer: Any = field(default=None)

    def prepare(self) -> None:
        """Make empty folders, and the topics of inputs and outputs."""
        names: list[str] = []
        for name in self._names():
            for query in self.spec.queries:
                if query.source == "kafka":
                    names.append(f"{self.topics}-{name}")
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        names += [
            f"{self.topics}-out-{place}"
            for place, query in enumerate(self.spec.queries)
            if query.sink in ("kafka", "transactional")
        ]
        for topic in dict.fromkeys(names):
            self.broker.create_topic(topic, partitions=_PARTITIONS)

    def _names(self) -> Sequence[str]:
        return "ab" if any(query.work == "join" for query in self.spec.queries) else "a"

    def add(self, parts: int) -> None:
        """Bring parts until there are so many."""
        for file in range(self.parts * FILES_PER_PART, parts * FILES_PER_PART):
            for salt, name in enumerate(self._names()):
                self._add(name, file, rows_of(file, salt=salt))
        self.parts = max(parts, self.parts)

    def _add(self, name: str, file: int, rows: list[Row]) -> None:
        sources = {query.source for query in self.spec.queries}
        if "files" in sources:
            draft = self.folder / name / f".{file}.draft"
            draft.write_text("".join(row.to_json() + "\n" for row in rows))
            at_s = time.time() // 3600 * 3600 - 7200 + file  # Spark reads files in the order of their times
            os.utime(draft, (at_s, at_s))
            draft.rename(self.folder / name / f"{file}.json")
        if "delta" in sources:
            add_to_delta(self.folder / f"{name}-delta", file, rows)
        if "kafka" in sources:
            self._produce(f"{self.topics}-{name}", rows)

    def _produce(self, topic: str, rows: list[Row]) -> None:
        if self._producer is None:
            from confluent_kafka import Producer

            self._producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for row in rows:
            self._producer.produce(topic, value=row.to_json(), partition=row.id % _PARTITIONS)
        if self._producer.flush(30):
            raise TimeoutError(f"The rows were expected in {topic} within 30 s.")


def add_to_delta(table: Path, version: int, rows: list[Row]) -> None:
    """Commit a file to a Delta table, without a Spark; version 0 makes the table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    frame = pa.table(
        {
            "id": pa.array([row.id for row in rows], pa.int64()),
            "k": pa.array([row.k for row in rows], pa.int32()),
            "v": pa.array([row.v for row in rows], pa.int32()),
            "ts": pa.array([row.ts_s * 1_000_000 for row in rows], pa.timestamp("us", tz="UTC")),
        }
    )
    path = table / f"part-{version:05d}.parquet"
    pq.write_table(frame, path)
    at_ms = time.time_ns() // 1_000_000
    fields = [("id", "long"), ("k", "integer"), ("v", "integer"), ("ts", "timestamp")]
    schema = {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields],
    }
    actions: list[dict[str, Any]] = [{"commitInfo": {"timestamp": at_ms, "operation": "WRITE"}}]
    if version == 0:
        actions.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
        actions.append(
            {
                "metaData": {
                    "id": "00000000-0000-4000-8000-000000000000",
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": json.dumps(schema),
                    "partitionColumns": [],
                    "configuration": {},
                    "createdTime": at_ms,
                }
            }
        )
    add = {"path": path.name, "partitionValues": {}, "size": path.stat().st_size, "dataChange": True}
    actions.append({"add": {**add, "modificationTime": at_ms}})
    draft = log / f".{version}.draft"
    draft.write_text("".join(json.dumps(action) + "\n" for action in actions))
    draft.rename(log / f"{version:020d}.json")
