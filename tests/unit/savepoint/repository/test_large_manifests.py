"""Manifests of many files, which stand in the store compressed."""

from __future__ import annotations

import gzip
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.errors import ManifestFormatError
from airflow_flinkstyle.savepoint.repository.summary import read_listing
from tests.unit.savepoint.manifests import a_large_manifest, a_manifest

if TYPE_CHECKING:
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

KEY = "orders/savepoints/sp-1.json"


def test_large_manifest_is_stored_compressed_and_read_as_it_was(repository: SavepointRepository):
    manifest = a_large_manifest()
    repository.publish(manifest)
    repository.publish(manifest)  # equal manifests are equal bytes
    stored = repository.store.read(KEY)
    text = manifest_json.to_json(manifest)
    assert gzip.decompress(stored).decode() == text
    assert len(stored) < 2000 * 41  # 32 of a digest, which stands there once
    assert repository.read("sp-1") == manifest
    (listed,) = read_listing(repository).savepoints
    assert listed.files == 2000


def test_manifest_takes_less_than_60_bytes_for_each_of_many_files_of_one_size(
    repository: SavepointRepository,
):
    numbers, names = range(4000), Random(7)  # noqa: S311  (as random as a real name, and the same each time)
    (query,) = a_large_manifest(len(numbers)).queries
    ssts = [f"{number % 50:06}-{UUID(int=names.getrandbits(128), version=4)}.sst" for number in numbers]
    files = [
        replace(entry, path=f"state/0/{number // 50}/SSTs/{name}", size_bytes=200)
        for number, entry, name in zip(numbers, query.files, ssts, strict=True)
    ]
    repository.publish(a_manifest(queries=(replace(query, files=tuple(files)),)))
    assert len(repository.store.read(KEY)) < 60 * len(numbers)


def test_small_manifest_is_stored_as_text(repository: SavepointRepository):
    repository.publish(a_manifest())
    assert repository.store.read(KEY) == manifest_json.to_json(a_manifest()).encode()


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        (lambda data: data[:-9], "cut off"),
        (lambda data: data + b"{}", "more behind"),
        (lambda data: data[:100] + b"\xff" * 40 + data[140:], "as gzip"),
        (lambda _: gzip.compress(b" " * ((1 << 28) + 1), 1), "at most 268,435,456 bytes"),
    ],
    ids=["cut", "more", "altered", "bomb"],
)
def test_damaged_compressed_manifest_is_named(repository: SavepointRepository, damage, found: str):  # noqa: ANN001
    repository.publish(a_large_manifest())
    repository.store.write(KEY, damage(repository.store.read(KEY)))
    with pytest.raises(ManifestFormatError, match=found) as caught:
        repository.read("sp-1")
    assert KEY in str(caught.value)
    (damaged,) = read_listing(repository).damaged
    assert damaged.savepoint_id == "sp-1"
