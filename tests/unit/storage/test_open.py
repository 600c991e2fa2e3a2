from __future__ import annotations

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.storage.open import open_as_hadoop


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        ("/ck", "file:///ck"),
        ("file:///ck/a b", "file:///ck/a b"),
        ("file:/ck/a%20b", "file:///ck/a%20b"),
        ("/ck/a#b?c:d", "file:///ck/a#b?c:d"),
        ("s3a://bucket/ck/a b#1?x=%20/", "s3://bucket/ck/a b#1?x=%20"),
        ("s3n://bucket", "s3://bucket"),
    ],
)
def test_a_location_is_opened_by_the_rules_of_hadoops_paths(location: str, uri: str):
    assert open_as_hadoop(location).uri == uri


@pytest.mark.parametrize("location", ["", "ck", "hdfs://nn/ck", "dbfs:/ck", "s3a:///ck", "file://host/ck"])
def test_what_only_the_client_of_its_file_system_opens_is_refused(location: str):
    with pytest.raises(BadInputError, match="Expected a location"):
        open_as_hadoop(location)
