"""Kafka clusters described by properties files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.cli.kafka.options import cluster_of
from airflow_flinkstyle.errors import BadInputError

if TYPE_CHECKING:
    from pathlib import Path


def test_settings_are_read_line_by_line_and_values_may_hold_equal_signs(tmp_path: Path):
    file = tmp_path / "old.properties"
    file.write_text("# kcat reads it too\n\nbootstrap.servers = h:1,i:2\n!x\nsasl.password=a=b c\n")
    cluster = cluster_of(file, "old")
    assert cluster.config == {"bootstrap.servers": "h:1,i:2", "sasl.password": "a=b c"}
    assert str(cluster) == "old (h:1,i:2)"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"bootstrap.servers=h:1\nhidden", "no = in line 2"),
        (b"sasl.password=hidden\n", "need bootstrap.servers"),
    ],
)
def test_file_that_describes_no_cluster_is_refused_without_showing_a_value(
    tmp_path: Path, content: bytes | None, found: str
):
    file = tmp_path / "old.properties"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInputError, match=found) as caught:
        cluster_of(file, "old")
    assert "hidden" not in str(caught.value)
