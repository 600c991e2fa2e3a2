"""A manifest in which every field is set."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from airflow_flinkstyle.checkpoint.table_position import TablePosition
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.query_records import SinkLineage, Sinks
from airflow_flinkstyle.savepoint.manifest import FileEntry, KafkaPosition, Manifest, QuerySnapshot


def a_lineage() -> SinkLineage:
    return SinkLineage(
        lineage="totals.7", shards=2, control_topic="flinkstyle-totals.7.internal", cluster_id="out",
        completed_batch=5, markers={0: 5, 1: 5},
    )  # fmt: skip


def a_manifest(**changes: Any) -> Manifest:
    position = KafkaPosition(
        cluster_id="old",
        topic_ids={"orders": "t-1"},
        offsets=Offsets.of({"orders": {0: 1050, 10: 3, 2: 4}}),  # type: ignore[dict-item]
        log_range={"orders": {0: (100, 1100)}},  # type: ignore[dict-item]
    )
    entry = FileEntry(path="offsets/5", size_bytes=3, blob="ab" * 32, digest="sha256:" + "ab" * 32)
    query = QuerySnapshot(
        name="totals",
        query_id="q-1",
        batch_id=5,  # type: ignore[arg-type]
        checkpoint_location="s3://bucket/cp",
        planned_offsets="v1\n{}\n-",
        pinned_confs={"spark.sql.shuffle.partitions": "2"},
        kafka={"0": position},
        tables={"1": TablePosition(format="delta", table_id="t-9", version=4, files_read=2)},
        sink="foreachBatch",
        sinks=Sinks(lineages=(a_lineage(),), begins="7", under_way=True),
        sink_table=TablePosition(format="iceberg", table_id=None, version=1 << 60, files_read=None),
        files=(
            entry,
            replace(entry, path="metadata", digest=None),
            replace(entry, path="state/0/0/1.delta", blob="packs/" + "cd" * 32, offset=4, pack_bytes=20),
        ),
    )
    manifest = Manifest(
        savepoint_id="sp-1",
        job="orders",
        parent="sp-0",
        alignment="none",
        taken_at_ms=1_700_000_000_000,
        taken_from_generation=None,
        batches_run=0,
        spark_version="4.2.0",
        evidence={"proof": "sha256:..."},
        cut_id="cut-1",
        queries=(query,),
    )
    return replace(manifest, **changes)


def a_large_manifest(count: int = 2000, **changes: Any) -> Manifest:
    """Return one of many files, whose digests cannot be compressed."""
    manifest = a_manifest(**changes)
    digests = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(count)]
    files = tuple(
        FileEntry(path=f"state/0/{number:06}", size_bytes=number, blob=digest, digest=f"sha256:{digest}")
        for number, digest in enumerate(digests)
    )
    return replace(manifest, queries=(replace(manifest.queries[0], files=files),))
