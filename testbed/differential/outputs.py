"""What stands in a query's output, as its readers see it, with the batch of each row where that is known."""

from __future__ import annotations

import json
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from testbed.differential.spec import QuerySpec
    from testbed.kafka import Broker

_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Written:
    """One row of an output."""

    row: tuple[tuple[str, object], ...]
    """Names and values, sorted."""
    batch: int | None = None


def read(query: QuerySpec, folder: Path, broker: Broker, topic: str) -> list[Written]:
    """Return the rows of one query's output."""
    match query.sink:
        case "json" | "parquet":
            return list(_files(folder, query.sink))
        case "delta" | "batch-txn" | "batch-merge":
            return list(_delta(folder))
        case "kafka" | "transactional":
            return [_written(json.loads(value)) for value in _records(broker, topic)]
        case "memory" | "batch-upsert":
            return [_written(row) for row in _json(folder / "table.json", [])]
        case "batch-append":
            path = folder / "rows.jsonl"
            return [_written(row) for row in _rows(path, "json")] if path.exists() else []
        case "batch-remember":
            return [_written(row, batch) for batch, row in _json(folder / "seen.json", {"rows": []})["rows"]]
        case "batch-file":
            return [
                _written(row, int(path.stem)) for path in folder.glob("*.json") for row in _json(path, [])
            ]


def _written(row: Mapping[str, object], batch: int | None = None) -> Written:
    return Written(tuple(sorted(row.items())), batch)


def _json(path: Path, otherwise: Any) -> Any:  # noqa: ANN401  # JSON
    return json.loads(path.read_text()) if path.exists() else otherwise


def _files(folder: Path, form: str) -> Iterator[Written]:
    """Read what the file sink's log names: only this is exactly once."""
    log = folder / "_spark_metadata"
    entries = [path for path in log.glob("*") if path.name.split(".")[0].isdigit()] if log.is_dir() else []
    seen: set[str] = set()
    for entry in sorted(entries, key=lambda path: int(path.name.split(".")[0])):
        for line in entry.read_text().splitlines()[1:]:
            found = json.loads(line)
            path = urllib.parse.unquote(urllib.parse.urlparse(found["path"]).path)
            if found.get("action", "add") == "add" and path not in seen:
                seen.add(path)
                for row in _rows(Path(path), form):
                    yield _written(row, int(entry.name.split(".")[0]))


def _rows(path: Path, form: str) -> list[dict[str, object]]:
    if form == "json":
        return [json.loads(line) for line in path.read_text().splitlines()]
    import pyarrow.parquet as pq

    rows: list[dict[str, object]] = pq.ParquetFile(path).read().to_pylist()
    return rows


def _delta(table: Path) -> Iterator[Written]:
    log = table / "_delta_log"
    live: dict[str, int | None] = {}
    for entry in sorted(log.glob("*.json")) if log.is_dir() else []:
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        batch = next((action["txn"]["version"] for action in actions if "txn" in action), None)
        for action in actions:
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
        live |= {action["add"]["path"]: batch for action in actions if "add" in action}
    for path, batch in live.items():
        for row in _rows(table / urllib.parse.unquote(path), "parquet"):
            yield _written(row, batch)


def _records(broker: Broker, topic: str) -> Iterator[bytes]:
    """Yield the value of each committed record."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "differential",
        "isolation.level": "read_committed",
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": "20",
    }
    spans = broker.log_range(topic)
    left = {partition for partition, (start, end) in spans.items() if end > start}
    if not left:
        return
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, number, spans[number][0]) for number in left])
        while left:
            record = consumer.poll(_TIMEOUT_S)
            if record is None:
                raise TimeoutError(f"No end of {topic} within {_TIMEOUT_S:g} s: a transaction may be open")
            error, partition = record.error(), record.partition() or 0
            if error is None:
                yield record.value() or b"null"
            elif error.name() != "_PARTITION_EOF":
                raise KafkaException(error)
            elif (record.offset() or 0) >= spans[partition][1]:
                left.discard(partition)
    finally:
        consumer.close()
