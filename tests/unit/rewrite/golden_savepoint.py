"""A savepoint of one golden checkpoint, whose sources are changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.rewrite.errors import SOURCE_CHANGE
from airflow_flinkstyle.rewrite.identity import change_sources
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses

if TYPE_CHECKING:
    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.rewrite.source_changes import (
        SourceChange,
    )
    from airflow_flinkstyle.savepoint.manifest import Manifest


GOLDEN = Path(__file__).parents[2] / "golden"


QUERY = "q"


class Savepoint:
    """A savepoint of one golden checkpoint."""

    def __init__(self, case: str, spark_version: str = "4.2.0") -> None:
        self.store = MemoryStore()
        self.repository = SavepointRepository(self.store, "shop")
        known = {"0": KafkaLog(cluster_id="old", topic_ids={"golden": "t-old"}, log_range={})}
        kafka = known if case == "kafka" else {}
        source = QuerySource(name=QUERY, checkpoint=LocalStore(GOLDEN / spark_version / case), kafka=kafka)
        label = SavepointLabel(
            savepoint_id="sp-1", taken_at_ms=1, spark_version=spark_version, taken_from_generation=1
        )
        self.manifest = take_savepoint(self.repository, [source], label)

    def change(self, *changes: SourceChange) -> Manifest:
        result = change_sources(self.manifest, self.repository, changes)
        assert verify_savepoint(result, self.repository, level="full").files
        return result

    def text(self, path: str, manifest: Manifest | None = None) -> str:
        entry = (manifest or self.manifest).queries[0].file(path)
        assert entry is not None, path
        return self.repository.read_file(entry).decode()

    def sources(self, manifest: Manifest, batch: int = 4) -> dict[str, str]:
        return dict(offset_log.parse(self.text(f"offsets/{batch}", manifest)).sources)

    def refusal(self, *changes: SourceChange) -> FlinkstyleError:
        before = sorted(info.key for info in self.store.list())
        with refuses(SOURCE_CHANGE) as caught:
            change_sources(self.manifest, self.repository, changes)
        assert sorted(info.key for info in self.store.list()) == before
        return caught.value
