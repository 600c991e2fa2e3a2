"""Both clusters of a migration, pretended: the new one holds each record ``SHIFT`` offsets earlier."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.kafka.fence.fences import FenceRecord
from airflow_flinkstyle.kafka.verdict import Exact
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.apply import apply_plan
from airflow_flinkstyle.rewrite.plan import plan_rewrite
from airflow_flinkstyle.rewrite.rows import SourceRef, SourceVerdicts
from airflow_flinkstyle.types import NextOffset
from tests.bad_minutes.job import END, QUERY, SHIFT, TOPIC, a_view

if TYPE_CHECKING:
    from collections.abc import Collection


class PretendedFence:
    """Keeps nobody away."""

    def plan(self, topics: Collection[str]) -> FenceRecord:
        return FenceRecord(kind="passive", cluster_id="old", topics=tuple(topics))

    def put(self, record: FenceRecord) -> None:
        pass

    def lift(self, record: FenceRecord) -> None:
        pass

    def missing(self, record: FenceRecord) -> tuple[()]:
        return ()


class PretendedKafka:
    """Fulfils ``KafkaSide`` and ``Watch``: producers are held at once, all is mirrored."""

    old_cluster_id, new_cluster_id = "old", "new"

    @property
    def watch(self) -> PretendedKafka:
        return self

    @property
    def fence(self) -> PretendedFence:
        return PretendedFence()

    def ends(self, topics: Collection[str]) -> Offsets:
        return Offsets({(topic, 0): NextOffset(END) for topic in topics})

    def late_writes(self, _ends: Offsets) -> None:
        return None

    def who_writes(self, *_: object) -> None:
        return None

    def await_mirrored(self, *_: object) -> None:
        return None

    def plan(self, manifest: Any) -> Any:
        assert manifest.queries[0].kafka["0"].cluster_id == self.old_cluster_id
        position = manifest.queries[0].kafka["0"].offsets[TOPIC, 0]
        found = SourceVerdicts(verdicts={(TOPIC, 0): Exact(NextOffset(position - SHIFT))}, settled=True)
        return plan_rewrite(manifest, a_view("new"), {SourceRef(query=QUERY, source="0"): found}, {})

    def apply(self, plan: Any, manifest: Any, repository: Any) -> Any:
        return apply_plan(plan, manifest, repository, live=a_view("new"))

    def unread(self, _manifest: Any) -> int:
        return END

    def commit_for(self, *_: object) -> str:
        return ""
