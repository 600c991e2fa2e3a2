"""Checkpoints of shapes that people have: what a first start says of each, and what an adoption does."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.checkpoint.found import look_into
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.adoption.outside import inspect_query
from airflow_flinkstyle.storage.open import open_as_hadoop

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

HERE = Path(__file__)
GOLDEN = HERE.parents[3] / "golden"
PAGE = HERE.parents[4] / "docs" / "real-checkpoints.md"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
OF_2_4 = {
    PROVIDER: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "2",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.streaming.aggregation.stateFormatVersion": "2",
    "spark.sql.shuffle.partitions": "200",
}
KAFKA = '{"orders":{"0":100,"1":90}}'
QUERY = "5c3f4a0e-0000-4000-8000-000000000000"


def offsets(*sources: str, version: int = 1, confs: Mapping[str, str] = OF_2_4) -> str:
    header = {"batchWatermarkMs": 0, "batchTimestampMs": 1764191055123, "conf": dict(confs)}
    return "\n".join([f"v{version}", json.dumps(header, separators=(",", ":")), *sources])


COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for key, text in files.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(text.encode())
    return folder


def logs(
    planned: range | tuple[int, ...] = range(9),
    done: range | tuple[int, ...] = range(9),
    text: str | None = None,
    more: Mapping[str, str] | None = None,
    *,
    at: str = "ck",
) -> Callable[[Path], str]:
    """Return what writes a checkpoint with these batches in its logs, and other files over it."""
    text = offsets(KAFKA) if text is None else text
    files = {f"offsets/{batch}": text for batch in planned} | {f"commits/{batch}": COMMIT for batch in done}
    files = {"metadata": json.dumps({"id": QUERY}), "sources/0/0": "\0v1\n" + KAFKA, **files, **(more or {})}
    return lambda folder: str(write(folder / at, files))


def golden(name: str) -> Callable[[Path], str]:
    """Return what copies a checkpoint that this Spark wrote."""
    return lambda folder: str(shutil.copytree(GOLDEN / name, folder / "ck"))


def without(make: Callable[[Path], str], key: str) -> Callable[[Path], str]:
    def made(folder: Path) -> str:
        location = make(folder)
        Path(location, key).unlink()
        return location

    return made


def nowhere(location: str) -> Callable[[Path], str]:
    return lambda _: location


@dataclass(frozen=True, slots=True)
class Shape:
    """One checkpoint, and what becomes of it."""

    name: str
    make: Callable[[Path], str]
    """Writes it below a folder; returns its location."""
    adopted: str
    """``batch 8``, with a planned one behind it if there is; or the code of the refusal."""
    first_start: str = "CHECKPOINT_FOUND"
    """Or ``begins anew``; ``the driver looks`` where only Spark's own client can."""


LAST = "batch 8"
FOREIGN = {**OF_2_4, PROVIDER: "com.example.OwnStateStoreProvider"}
SHAPES = [
    Shape("Spark 2.4, one Kafka source", logs(), LAST),
    Shape("Spark 3.5, aggregation on HDFS's store", golden("3.5.9/hdfs"), "batch 4"),
    Shape("Spark 3.5, join of two streams", golden("3.5.9/join"), "batch 4"),
    Shape("Spark 4.0, RocksDB with changelogs", golden("4.0.5/rocksdb-changelog"), "batch 4"),
    Shape("Spark 4.1, state format 2", golden("4.1.4/format-v2"), "batch 4"),
    Shape("Spark 4.2, Kafka", golden("4.2.0/kafka"), "batch 4"),
    Shape("Spark 4.2, sources with names (offset log 2)", golden("4.2.0/named-sources"), "batch 4"),
    Shape("Spark 4.3, transformWithState", golden("4.3.0/transform-with-state"), "batch 4"),
    Shape("offset log of a later Spark (v9)", logs(text="v9\n{}\n-"), "CHECKPOINT_UNSUPPORTED"),
    Shape("killed in a batch: the last one is planned only", logs(range(10)), "batch 8, batch 9 planned"),
    Shape("killed in its first batch: nothing is committed", logs((0,), ()), "NO_COMMIT_YET"),
    Shape("started, nothing planned yet", logs((), ()), "NO_COMMIT_YET", "begins anew"),
    Shape("an empty folder", nowhere("/nonexistent/ck"), "BAD_INPUT", "begins anew"),
    Shape("minBatchesToRetain 3", logs(range(6, 9), range(6, 9)), LAST),
    Shape("minBatchesToRetain 1", logs((7, 8), (7, 8)), LAST),
    Shape("minBatchesToRetain 1, killed in a batch", logs((8, 9), (8,)), "batch 8, batch 9 planned"),
    Shape("offsets/N-1 is missing, which Spark reads first", logs((8,), (8,)), "CHECKPOINT_INVARIANT"),
    Shape("two writers: commits ahead of offsets", logs(range(8), range(9)), "CHECKPOINT_INVARIANT"),
    Shape("two writers: two batches without a commit", logs(range(11)), "CHECKPOINT_INVARIANT"),
    Shape("asynchronous progress tracking: gaps", logs((0, 40, 80), (0, 40, 80)), "CHECKPOINT_UNSUPPORTED"),
    Shape(
        "offsets edited by hand, with a line end behind them",
        logs(more={"offsets/8": offsets(KAFKA) + "\n"}),
        LAST,
    ),
    Shape(
        "offsets edited by hand, a brace lost",
        logs(more={"offsets/8": offsets(KAFKA[:-1])}),
        "CHECKPOINT_LOG_FORMAT",
    ),
    Shape("offsets of 0 bytes after a full disk", logs(more={"offsets/8": ""}), "CHECKPOINT_LOG_FORMAT"),
    Shape("metadata is missing", without(logs(), "metadata"), "BAD_INPUT"),
    Shape("metadata is cut off", logs(more={"metadata": '{"id":'}), "CHECKPOINT_LOG_FORMAT"),
    Shape(
        "hidden .crc and .tmp files beside", logs(more={"offsets/.8.crc": "x", "commits/.9.t.tmp": "x"}), LAST
    ),
    Shape("many queries below one folder, the folder named", logs(at="totals"), LAST),
    Shape(
        "_spark_metadata and data files beside",
        logs(more={"_spark_metadata/0": "v1", "part-0.json": "{}"}),
        LAST,
    ),
    Shape("no query name: a folder of a random id", logs(at="2b9e-4c1a"), LAST),
    Shape("a path with a space", logs(at="a b"), LAST),
    Shape("a path with #", logs(at="a#1"), LAST),
    Shape("a path with ?", logs(at="a?b=1"), LAST),
    Shape("a path with %20", logs(at="a%20b"), LAST),
    Shape("two Kafka sources, one without offsets yet", logs(text=offsets(KAFKA, "-")), LAST),
    Shape("a file source", logs(text=offsets('{"logOffset":8}')), LAST),
    Shape("a Delta source", logs(text=offsets('{"sourceVersion":1,"reservoirVersion":8,"index":-1}')), LAST),
    Shape("a Kinesis source", logs(text=offsets('{"shardId-000000000000":{"iteratorType":"AT"}}')), LAST),
    Shape("a state store of one's own", logs(text=offsets(KAFKA, confs=FOREIGN)), "CHECKPOINT_UNSUPPORTED"),
    Shape("hdfs://", nowhere("hdfs://namenode/ck"), "BAD_INPUT", "the driver looks"),
    Shape("abfss://", nowhere("abfss://c@a.dfs.core.windows.net/ck"), "BAD_INPUT", "the driver looks"),
    Shape("gs://", nowhere("gs://bucket/ck"), "BAD_INPUT", "the driver looks"),
    Shape("dbfs:/", nowhere("dbfs:/ck"), "BAD_INPUT", "the driver looks"),
]


def adoption_of(location: str) -> str:
    """Read a checkpoint as an adoption does: how far it came, or the code of the refusal."""
    try:
        found = inspect_query("orders", location, open_as_hadoop)
        _ = found.newest.kafka_sources
    except FlinkstyleError as error:
        return error.code
    planned = f", batch {found.batch_id + 1} planned" if found.planned is not None else ""
    return f"batch {found.batch_id}{planned}"


def first_start_of(location: str) -> str:
    """Look into a place as a first start does: what it says."""
    try:
        store = open_as_hadoop(location)
    except FlinkstyleError:
        return "the driver looks"
    return "begins anew" if look_into(store) is None else "CHECKPOINT_FOUND"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_checkpoint_is_found_and_adopted_or_refused_by_name(shape: Shape, tmp_path: Path):
    location = shape.make(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert first_start_of(location) == shape.first_start
    assert adoption_of(location) == shape.adopted
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_folder_of_many_queries_names_those_below_it(tmp_path: Path):
    for name in ("totals", "clicks"):
        logs(at=name)(tmp_path)
    assert first_start_of(str(tmp_path)) == "begins anew"
    with pytest.raises(FlinkstyleError) as refused:
        inspect_query("orders", str(tmp_path), open_as_hadoop)
    assert "Below it are the checkpoints clicks, totals" in refused.value.remedy


def test_page_has_this_table():
    def shown(text: str) -> str:
        text = re.sub(r"^batch \d+$", "continues", text)
        text = re.sub(r"^batch \d+, batch \d+ planned$", "continues with its planned batch", text)
        return f"refused (`{text}`)" if text.isupper() else text

    names: dict[str, list[str]] = {}
    for shape in SHAPES:
        row = f"| {shown(shape.first_start)} | {shown(shape.adopted)} |"
        names.setdefault(row, []).append(shape.name)
    lines = [f"{row} {'; '.join(of)} |" for row, of in names.items()]
    table = "\n".join(["| a first start | an adoption | checkpoints |", "|---|---|---|", *lines])
    assert table in PAGE.read_text(), f"Put this into {PAGE.name}:\n{table}"
