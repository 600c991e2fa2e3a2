"""A savepoint of a query that reads two Kafka sources, in memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.kafka.policies import parse_policies
from airflow_flinkstyle.kafka.verdict import Exact, Verdict
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.apply import apply_plan
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan, plan_rewrite
from airflow_flinkstyle.rewrite.rows import SourceRef, SourceVerdicts
from airflow_flinkstyle.savepoint.manifest import FileEntry, KafkaPosition, Manifest, QuerySnapshot
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.types import BatchId, NextOffset
from testbed.memory_store import MemoryStore
from tests.manifests import a_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping


HEADER = '{"batchWatermarkMs":5,"batchTimestampMs":7,"conf":{"spark.sql.shuffle.partitions":"4"}}'


V1 = f'v1\n{HEADER}\n{{"orders":{{"1":2040,"0":1050}}}}\n{{"other":{{"0":9}}}}'


V2 = f'v2\n{HEADER}\nzeta:{{"orders":{{"1":2040,"0":1050}}}}\nalpha:{{"other":{{"0":9}}}}'


PLANNED_LOG = V1.replace("1050", "1060").replace("2040", "2041")


COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def a_view(
    ends: Mapping[int, int] | None = None, *, topic: str = "orders", topic_id: str = "t-new", start: int = 0
) -> ClusterView:
    partitions = {
        number: LogRange(start=NextOffset(start), end=NextOffset(end), last_stable=NextOffset(end))
        for number, end in (ends or {0: 2000, 1: 3000}).items()
    }
    topics = {topic: TopicView(topic_id=topic_id, partitions=partitions)}
    return ClusterView(cluster_id="new", topics=topics)


def a_position(offsets: Mapping[str, Mapping[int, int]], cluster_id: str = "old") -> KafkaPosition:
    return KafkaPosition(
        cluster_id=cluster_id,
        topic_ids=dict.fromkeys(offsets, "t-old"),
        offsets=Offsets.of({t: {p: NextOffset(o) for p, o in parts.items()} for t, parts in offsets.items()}),
        log_range={},
    )


class Shop:
    """A repository with one savepoint of a query that reads two Kafka sources."""

    def __init__(self, log: str = V1, planned: str | None = None) -> None:
        self.store = MemoryStore()
        self.repository = SavepointRepository(self.store, "shop")
        names = ("0", "1") if log.startswith("v1") else ("zeta", "alpha")
        self.ref = SourceRef(query="totals", source=names[0])
        files = {
            "commits/7": COMMIT,
            "metadata": '{"id":"0b0b0b0b-0000-4000-8000-000000000000"}',
            "offsets/6": log,
            "offsets/7": log,
            "sources/0/0": "0v1",
        }
        query = QuerySnapshot(
            name="totals",
            query_id="0b0b0b0b-0000-4000-8000-000000000000",
            batch_id=BatchId(7),
            checkpoint_location="file:///checkpoint",
            planned_offsets=planned,
            pinned_confs={"spark.sql.shuffle.partitions": "4"},
            kafka={
                names[0]: a_position({"orders": {0: 1050, 1: 2040}}),
                names[1]: a_position({"other": {0: 9}}, "third"),
            },
            files=tuple(self._file(path, content) for path, content in sorted(files.items())),
        )
        self.manifest = a_manifest(query)
        self.repository.publish(self.manifest)

    def _file(self, path: str, content: str) -> FileEntry:
        blob = self.repository.put_blob(content.encode())
        return FileEntry(path=path, size_bytes=len(content), blob=blob, digest=f"sha256:{blob}")

    def plan(
        self,
        verdicts: Mapping[int, Verdict] | None = None,
        *,
        view: ClusterView | None = None,
        rename: Mapping[str, str] | None = None,
        **found: Any,
    ) -> OffsetRewritePlan:
        verdicts = verdicts or {0: Exact(NextOffset(950)), 1: Exact(NextOffset(2045))}
        source = SourceVerdicts(
            verdicts={("orders", number): verdict for number, verdict in verdicts.items()},
            evidence={("orders", 0): json.dumps({"digest": "d"})},
            **found,
        )
        return plan_rewrite(self.manifest, view or a_view(), {self.ref: source}, rename or {})

    def text(self, manifest: Manifest, path: str) -> str:
        entry = manifest.queries[0].file(path)
        assert entry is not None
        return self.repository.read_file(entry).decode()

    def failure(
        self,
        plan: OffsetRewritePlan,
        live: ClusterView | None = None,
        allow: str = "exact",
    ) -> FlinkstyleError:
        before = self.snapshot()
        with pytest.raises(FlinkstyleError) as caught:
            apply_plan(
                plan, self.manifest, self.repository, live=live or a_view(), allow=parse_policies(allow)
            )
        assert self.snapshot() == before
        return caught.value

    def snapshot(self) -> dict[str, str]:
        return {info.key: info.version for info in self.store.list()}
