from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.errors import (
    SAVEPOINT_TOMBSTONED,
    ManifestFormatError,
    SavepointConflictError,
    SavepointMissingError,
)
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.errors import ObjectMissingError
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., Any]

Repository = SavepointRepository


@pytest.mark.parametrize("job", ["", "a/b", "..", ".hidden", "a b", "x" * 200])
def test_job_name_must_be_one_folder(job: str):
    with pytest.raises(BadInputError, match="job name"):
        SavepointRepository(MemoryStore(), job)


def test_missing_savepoint_lists_the_newest_ids(repository: Repository, a_checkpoint: Make, take: Make):
    for number in range(7):
        take(repository, a_checkpoint(), f"sp-{number}", taken_at_ms=number)
    with pytest.raises(SavepointMissingError, match=r"sp-6, sp-5, sp-4, sp-3, sp-2\."):
        repository.read("sp-9")
    with pytest.raises(SavepointMissingError, match="the job has none"):
        SavepointRepository(MemoryStore(), "other").read("../sp-1")


@pytest.mark.parametrize(
    "mark",
    [b'{"tombstone": ', b'{"tombstone": "\xff', b'{"tombstone": 1}{', b'{"tombstone": ' + b"[" * 99_999],
)
def test_mark_of_a_spent_id_that_was_altered_still_spends_it_and_is_named(
    repository: Repository, a_checkpoint: Make, take: Make, mark: bytes
):
    repository.store.write("orders/savepoints/sp-1.json", mark)
    with refuses(SAVEPOINT_TOMBSTONED, match=r"orders/savepoints/sp-1\.json was altered"):
        take(repository, a_checkpoint(), "sp-1")


def test_publishing_the_same_again_is_no_error_and_another_is(
    repository: Repository, a_checkpoint: Make, take: Make
):
    manifest = take(repository, a_checkpoint())
    repository.publish(manifest)
    with pytest.raises(SavepointConflictError, match="sp-1"):
        repository.publish(replace(manifest, taken_at_ms=2))
    assert repository.read("sp-1") == manifest


def test_manifest_under_another_name_is_refused(a_checkpoint: Make, take: Make):
    store = MemoryStore()
    manifest = take(SavepointRepository(store, "orders"), a_checkpoint())
    text = manifest_json.to_json(manifest).encode()
    store.write("orders/savepoints/sp-2.json", text)
    store.write("other/savepoints/sp-1.json", text)
    for job, savepoint_id in (("orders", "sp-2"), ("other", "sp-1")):
        with pytest.raises(ManifestFormatError, match="job and savepoint_id"):
            SavepointRepository(store, job).read(savepoint_id)


def test_manifest_that_could_not_be_read_back_is_not_published(
    repository: Repository, a_checkpoint: Make, take: Make
):
    manifest = take(repository, a_checkpoint())
    query = manifest.queries[0]
    hostile = replace(query, files=(replace(query.files[0], path="../outside"),))
    with pytest.raises(ManifestFormatError):
        repository.publish(replace(manifest, savepoint_id="sp-2", queries=(hostile,)))
    assert repository.ids() == ("sp-1",)


def test_blob_is_read_in_pieces_and_a_missing_one_is_an_error(repository: Repository):
    blob = repository.put_blob(b"content")
    assert b"".join(repository.open(blob)) == b"content"
    assert repository.blob_sizes() == {blob: 7}
    with pytest.raises(ObjectMissingError):
        list(repository.open("0" * 64))
    empty = repository.put_blob(b"")
    assert list(repository.open(empty)) == []
