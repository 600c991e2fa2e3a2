"""Locations: whatever a path holds, the same folder is found by its location, by every side."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.spec import default_checkpoint_root
from airflow_flinkstyle.storage.keys import file_path, file_uri, hadoop_location
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import is_of_hadoop, open_as_hadoop, open_store
from airflow_flinkstyle.storage.s3 import S3Store

_PARTS = (
    "#", "?", "%", "%20", "%2F", "%%", " ", "+", "=", ":", "://", "ü", "Ω", "[", "]", "*", "&", ";", "@", "'",
    '"', "\\", "~", "$", "{", "\t", "\n", "a", "B", "7", "-", "_", ".x",
)  # fmt: skip


def a_path(seed: int) -> str:
    chance = random.Random(seed)  # noqa: S311
    return "/" + "/".join(
        "x" + "".join(chance.choice(_PARTS) for _ in range(chance.randint(1, 5))).replace("/", "")
        for _ in range(chance.randint(1, 3))
    )


@pytest.mark.parametrize("path", ["/a#b", "/a?b", "/a%20b", "/my jobs+1%20 date=2026-11-26 #x ü", "/a%23b"])
def test_folder_of_any_name_is_found_again_by_its_location(path: str) -> None:
    assert_one_folder(path)


def test_folders_of_random_names_are_found_again_by_their_locations() -> None:
    for seed in range(500):
        assert_one_folder(a_path(seed))


def assert_one_folder(path: str) -> None:
    store = open_store(path)
    assert isinstance(store, LocalStore)
    again = open_store(store.uri)
    assert (again.uri, again.local_path("k")) == (store.uri, Path(path, "k"))
    assert file_path(store.uri) == path
    assert file_uri(path) == store.uri
    assert file_path(f"{store.uri}/below") == f"{path}/below"
    # Hadoop quotes nothing: what Spark is given is the folder's own name.
    assert hadoop_location(store.uri) == f"file://{path}"
    assert hadoop_location(path) == path
    assert open_as_hadoop(hadoop_location(store.uri)).uri == store.uri
    assert default_checkpoint_root(store.uri) == default_checkpoint_root(path) == f"{path}/checkpoints"


@pytest.mark.parametrize("prefix", ["a#b", "a?b=c", "a%20b", "a b/c"])
def test_prefix_of_any_name_is_found_again_by_its_location(prefix: str) -> None:
    store = open_store(f"s3://bucket/{prefix}")
    assert isinstance(store, S3Store)
    assert store.uri == f"s3://bucket/{prefix}" == open_store(store.uri).uri
    assert hadoop_location(store.uri) == f"s3a://bucket/{prefix}"
    assert open_as_hadoop(hadoop_location(store.uri)).uri == store.uri


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        ("/ck", "file:///ck"),
        ("file:///ck/a b", "file:///ck/a b"),
        ("file:/ck/a%20b", "file:///ck/a%2520b"),
        ("/ck/a#b?c:d", "file:///ck/a%23b%3Fc:d"),
        ("s3a://bucket/ck/a b#1?x=%20/", "s3://bucket/ck/a b#1?x=%20"),
        ("s3n://bucket", "s3://bucket"),
    ],
)
def test_a_location_is_opened_by_the_rules_of_hadoops_paths(location: str, uri: str):
    assert open_as_hadoop(location).uri == uri


@pytest.mark.parametrize(
    ("location", "is_hadoops"),
    [
        ("hdfs://nn/ck", True), ("abfss://c@a.dfs.core.windows.net/ck", True), ("dbfs:/ck", True),
        ("s3a://bucket/ck", False), ("file:/ck", False), ("/a:/b", False), ("ck", False), ("ck:x", False),
    ],
)  # fmt: skip
def test_file_system_that_only_sparks_client_opens_is_known_by_its_name(location: str, is_hadoops: bool):
    assert is_of_hadoop(location) is is_hadoops


@pytest.mark.parametrize("location", ["", "ck", "hdfs://nn/ck", "dbfs:/ck", "s3a:///ck", "file://host/ck"])
def test_what_only_the_client_of_its_file_system_opens_is_refused(location: str):
    with pytest.raises(BadInputError, match="Expected a location"):
        open_as_hadoop(location)
