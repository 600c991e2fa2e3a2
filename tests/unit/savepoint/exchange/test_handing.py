"""A savepoint of one job copied to another job of the root."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.savepoint.errors import SavepointDamagedError, SavepointMissingError
from airflow_flinkstyle.savepoint.exchange.handing import hand_over
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.savepoint.manifest import Manifest


@pytest.fixture
def manifest(
    repository: SavepointRepository, a_checkpoint: Callable[..., Any], take: Callable[..., Any]
) -> Manifest:
    found: Manifest = take(repository, a_checkpoint())
    return found


def test_savepoint_is_another_jobs_whole_and_from_outside(
    repository: SavepointRepository, manifest: Manifest
):
    beside = SavepointRepository(repository.store, "beside")
    copied = hand_over(repository, "sp-1", beside)
    assert (copied.job, copied.taken_from_generation) == ("beside", None)
    assert hand_over(repository, "sp-1", beside) == copied == beside.read("sp-1")
    verify_savepoint(copied, beside, level="full")
    files = [(one.path, repository.read_file(one)) for query in manifest.queries for one in query.files]
    assert [(one.path, beside.read_file(one)) for query in copied.queries for one in query.files] == files
    assert repository.read("sp-1") == manifest


def test_copy_that_the_store_made_is_read_for_its_digest(repository: SavepointRepository, manifest: Manifest):
    """Nothing has read it yet, so its digest is the store's own."""
    queries = [
        replace(
            query,
            files=tuple(
                replace(one, digest=None, blob=repository.put_blob(repository.read_file(one)), offset=None,
                        pack_bytes=None)
                for one in query.files
            ),
        )
        for query in manifest.queries
    ]  # fmt: skip
    repository.publish(replace(manifest, savepoint_id="sp-copied", queries=tuple(queries)))
    beside = SavepointRepository(repository.store, "beside")
    assert hand_over(repository, "sp-copied", beside).queries[0].files[0].digest is not None


def test_damaged_or_missing_savepoint_is_not_copied(repository: SavepointRepository, manifest: Manifest):
    beside = SavepointRepository(repository.store, "beside")
    with pytest.raises(SavepointMissingError):
        hand_over(repository, "sp-2", beside)
    store, key = repository.place(next(iter(manifest.blobs)))
    store.write(key, store.read(key)[:-1] + b"x")
    with pytest.raises(SavepointDamagedError):
        hand_over(repository, "sp-1", beside)
    assert not beside.ids()
