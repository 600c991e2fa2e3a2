"""Savepoints made from others."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.savepoint.blobs.intents import read_intents
from airflow_flinkstyle.savepoint.blobs.leases import LeaseWatch
from airflow_flinkstyle.savepoint.errors import RepositoryBusyError, SavepointMissingError
from airflow_flinkstyle.savepoint.files.derive import changed_file, publish_derived
from airflow_flinkstyle.savepoint.manifest import FileEntry
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import prune

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.savepoint.manifest import QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

    Make = Callable[..., Any]


def test_derived_savepoint_is_its_parent_but_for_what_was_changed(
    repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    parent = replace(take(repository, a_checkpoint()), evidence={"a": "1", "b": "1"})
    two = replace(parent, queries=(*parent.queries, replace(parent.queries[0], name="second")))

    def moved(query: QuerySnapshot) -> QuerySnapshot:
        return replace(query, checkpoint_location=f"new place of {query.name}")

    derived = publish_derived(two, repository, "sp-2", moved, evidence={"b": "2"})
    assert derived == replace(
        two,
        savepoint_id="sp-2",
        parent="sp-1",
        evidence={"a": "1", "b": "2"},
        queries=tuple(map(moved, two.queries)),
    )
    assert repository.read("sp-2") == derived
    assert publish_derived(two, repository, "sp-2", moved, evidence={"b": "2"}) == derived
    assert publish_derived(two, repository, "sp-3", moved).evidence == two.evidence


def test_nothing_is_derived_from_a_savepoint_that_is_gone(
    repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    parent = take(repository, a_checkpoint())
    repository.delete_manifest("sp-1")
    with pytest.raises(SavepointMissingError, match="sp-1"):
        publish_derived(parent, repository, "sp-2", lambda query: query)
    assert repository.find("sp-2") is None


def test_no_blob_is_freed_while_a_savepoint_is_derived(
    repository: SavepointRepository, a_checkpoint: Make, take: Make
):
    published: list[str | None] = []

    def change(query: QuerySnapshot) -> QuerySnapshot:
        entry = changed_file(repository, "offsets/2", b"of no savepoint yet")
        with pytest.raises(RepositoryBusyError, match="take intent of the maker of sp-2"):
            prune(repository, RetentionPolicy(), in_use=dict, holder="test", wait_s=0.0)
        live, _ = read_intents(repository, LeaseWatch())
        published.extend(intent.publishes for intent in live.values())
        files = (*(kept for kept in query.files if kept.path != "offsets/2"), entry)
        return replace(query, files=files)

    publish_derived(take(repository, a_checkpoint()), repository, "sp-2", change)
    assert published == ["sp-2"]  # if it is given up, the id is tombstoned
    assert read_intents(repository, LeaseWatch())[0] == {}


def test_changed_file_is_named_by_its_content(repository: SavepointRepository):
    content = b"changed"
    sha256 = hashlib.sha256(content).hexdigest()
    entry = changed_file(repository, "offsets/7", content)
    assert entry == FileEntry(path="offsets/7", size_bytes=7, blob=entry.blob, digest=f"sha256:{sha256}")
    assert repository.read_file(entry) == content
