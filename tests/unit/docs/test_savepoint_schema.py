"""The schema beside the format document says what the package writes and reads, no more and no less."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from airflow_flinkstyle.checkpoint.table_position import TablePosition
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.query_records import SinkLineage, Sinks
from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.errors import ManifestFormatError
from airflow_flinkstyle.savepoint.manifest import FileEntry, KafkaLog, KafkaPosition, Manifest, QuerySnapshot
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import BatchId, NextOffset
from testbed.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs" / "savepoint.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
GOLDEN = sorted(path.parent for path in (ROOT / "tests" / "golden").glob("*/*/metadata"))


def problems(document: object) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(document)]


def is_read(document: object) -> bool:
    text = json.dumps(document)
    try:
        manifest_json.from_json(manifest_json.with_checksum(text) if '"checksum": "' in text else text)
    except ManifestFormatError:
        return False
    return True


def a_document(**changes: Any) -> dict[str, Any]:
    """Render a manifest with every field filled."""
    position = KafkaPosition(
        cluster_id="old",
        topic_ids={"orders": "t-1"},
        offsets=Offsets.of({"orders": {0: NextOffset(12), 1: NextOffset(0)}}),
        log_range={"orders": {0: (NextOffset(0), NextOffset(90)), 1: (NextOffset(0), NextOffset(0))}},
    )
    lineage = SinkLineage(
        lineage="l-1", shards=2, control_topic="c", cluster_id="out", completed_batch=2, markers={0: 2, 1: 2}
    )
    file = FileEntry(path="state/0/0/1.zip", size_bytes=7, blob="ab", digest=f"sha256:{'a' * 64}")
    query = QuerySnapshot(
        name="totals",
        query_id="q-1",
        batch_id=BatchId(2),
        checkpoint_location="s3://bucket/checkpoint",
        planned_offsets="v1\n{}\n-",
        pinned_confs={"spark.sql.shuffle.partitions": "2"},
        kafka={"0": position},
        tables={"1": TablePosition(format="delta", table_id="t-9", version=4, files_read=2)},
        sink="foreachBatch",
        sinks=Sinks(lineages=(lineage,), begins="7"),
        sink_table=TablePosition(format="iceberg", table_id=None, version=1 << 60, files_read=None),
        files=(file, FileEntry(path="metadata", size_bytes=1, blob="origin/c-1/x-1", digest=None)),
    )
    manifest = Manifest(
        savepoint_id="sp-2",
        job="orders",
        parent="sp-1",
        alignment="aligned",
        taken_at_ms=1,
        taken_from_generation=3,
        batches_run=1,
        spark_version="4.2.0",
        evidence={"mirror": "level"},
        cut_id="cut-1",
        queries=(query,),
    )
    return {**json.loads(manifest_json.to_json(manifest)), **changes}


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_savepoint_of_a_real_checkpoint_is_of_the_schema(path: Path):
    repository = SavepointRepository(MemoryStore(), "orders")
    label = SavepointLabel(
        savepoint_id="sp-1", taken_at_ms=1, spark_version=path.parent.name, taken_from_generation=None
    )
    golden = KafkaLog(cluster_id="c", topic_ids={"golden": "t"}, log_range={})
    kafka = {"0": golden} if path.name == "kafka" else {}
    source = QuerySource(name="q", checkpoint=LocalStore(path), kafka=kafka)
    manifest = take_savepoint(repository, [source], label)
    assert problems(json.loads(manifest_json.to_json(manifest))) == []


def test_a_manifest_with_every_field_is_of_the_schema():
    assert problems(a_document()) == []
    assert is_read(a_document())


def at(*path: str | int) -> Callable[[dict[str, Any], object], None]:
    def put(document: dict[str, Any], value: object) -> None:
        place: Any = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value

    return put


QUERY, FILES = ("queries", 0), ("queries", 0, "files")
TABLE = (*QUERY, "tables", "1")
SINKS, LINEAGE = (*QUERY, "sinks"), (*QUERY, "sinks", "lineages", 0)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format_version",), 3),
        (("format_version",), 0),
        (("savepoint_id",), "../sp-1"),
        (("job",), "a/b"),
        (("parent",), ""),
        (("alignment",), "half"),
        (("taken_at_ms",), "1"),
        (("taken_from_generation",), 1.5),
        (("evidence",), {"mirror": 1}),
        (("cut_id",), ""),
        (("surprise",), 1),
        ((*QUERY, "name"), ""),
        ((*QUERY, "batch_id"), -1),
        ((*QUERY, "planned_offsets"), 1),
        ((*QUERY, "pinned_confs"), []),
        ((*QUERY, "tables"), None),
        ((*QUERY, "sink_table"), {}),
        ((*TABLE, "format"), "hudi"),
        ((*TABLE, "table_id"), ""),
        ((*TABLE, "version"), -1),
        ((*TABLE, "files_read"), -1),
        ((*QUERY, "sink"), ""),
        ((*QUERY, "sinks"), []),
        ((*QUERY, "sinks", "begins"), None),
        ((*QUERY, "sinks", "surprise"), 1),
        ((*LINEAGE, "lineage"), ""),
        ((*LINEAGE, "shards"), 0),
        ((*LINEAGE, "completed_batch"), -2),
        ((*LINEAGE, "markers"), {"x": 1}),
        ((*QUERY, "surprise"), 1),
        ((*QUERY, "kafka", "0", "cluster_id"), ""),
        ((*QUERY, "kafka", "0", "offsets"), {"orders": {"x": 1}}),
        ((*QUERY, "kafka", "0", "offsets"), {"orders": {}}),
        ((*QUERY, "kafka", "0", "offsets"), {"orders": {"0": -1}}),
        ((*QUERY, "kafka", "0", "log_range"), {"orders": {"0": [1]}}),
        (("checksum",), "abc"),
        (FILES, []),
        ((*FILES, "surprise"), 1),
        ((*FILES, "path"), "x"),
        ((*FILES, "path"), ["a", 1]),
        ((*FILES, "size_bytes"), [7, -1]),
        ((*FILES, "sha256"), "?"),
        ((*FILES, "digest"), {"1": ""}),
        ((*FILES, "digest"), {"1": "sha256:12"}),
        ((*FILES, "digest"), {"1": "abc"}),
        ((*FILES, "digest"), {"x": None}),
        ((*FILES, "blob"), {"0": "ab", "1": 1}),
        ((*FILES, "blob"), {"0": "ab", "01": "ab"}),
        *(
            (field, value)
            for key in ("", "/a", "a//b", "../a", "a/..", "a/./b", ".", "a\\b", "a\nb")
            for field, value in (
                ((*FILES, "path"), ["a", key]),
                ((*FILES, "blob"), {"0": "ab", "1": key}),
            )
        ),
    ],
    ids=str,
)
def test_what_the_package_refuses_is_not_of_the_schema(path: tuple[str | int, ...], value: object):
    document = a_document()
    at(*path)(document, value)
    assert not is_read(document)
    assert problems(document)


@pytest.mark.parametrize("where", [(), QUERY, FILES, (*QUERY, "kafka", "0"), TABLE, SINKS, LINEAGE], ids=str)
def test_no_field_may_be_missing(where: tuple[str | int, ...]):
    fields: Any = a_document()
    for step in where:
        fields = fields[step]
    for name in fields:
        document = a_document()
        place: Any = document
        for step in where:
            place = place[step]
        del place[name]
        assert not is_read(document), name
        assert problems(document), name
