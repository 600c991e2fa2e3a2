from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from benchmarks.common import MIB
from benchmarks.signing import payload_of
from benchmarks.synthetic import SyntheticCheckpoint
from testbed.memory_store import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path


def test_synthetic_checkpoint_can_be_saved_and_changes_by_what_it_says(tmp_path: Path):
    checkpoint = SyntheticCheckpoint(tmp_path / "live", 70 * MIB)
    repository = SavepointRepository(MemoryStore(), "bench")
    source = QuerySource(name="q", checkpoint=LocalStore(tmp_path / "live"), kafka={})

    def take(number: int) -> int:
        label = SavepointLabel(
            savepoint_id=f"sp-{number}", taken_at_ms=number, spark_version="4.2.0", taken_from_generation=None
        )
        manifest = take_savepoint(repository, [source], label)
        verify_savepoint(manifest, repository, level="full")
        return sum(repository.blob_sizes().values())

    first = take(1)
    assert first >= 70 * MIB
    replaced = checkpoint.replace_bytes(MIB)
    assert replaced >= MIB
    assert replaced <= take(2) - first < replaced + MIB


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("UNSIGNED-PAYLOAD", "unsigned"),
        ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", "unsigned"),
        ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "streaming"),
        ("ab" * 32, "signed"),
        (None, "unknown"),
    ],
)
def test_payload_is_told_from_what_a_tool_sends(header: str | None, expected: str):
    def send(endpoint: str) -> None:
        if header is not None:
            told = {"x-amz-content-sha256": header}
            request = urllib.request.Request(f"{endpoint}/b/k", b"content", told, method="PUT")  # noqa: S310
            with urllib.request.urlopen(request) as answer:  # noqa: S310 - to a server of ours
                assert answer.status == 200

    assert payload_of(send) == expected
