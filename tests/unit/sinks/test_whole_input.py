"""Whether all rows of a task have come; that they break off under Spark: tests/integration."""

from __future__ import annotations

from io import BufferedReader, BytesIO

from airflow_flinkstyle.sinks.errors import INPUT_CUT, SINK_CONFIG
from airflow_flinkstyle.sinks.spread import whole
from testbed.refusals import refuses


def main(infile: BufferedReader) -> list[int]:
    """Read as Spark's worker does."""
    return list(whole(iter([1, 2])))


def test_rows_are_whole_only_if_their_end_is_told_behind_them() -> None:
    def connection(data: bytes) -> BufferedReader:
        return BufferedReader(BytesIO(data))

    assert main(connection(b"\xff\xff\xff\xfc")) == [1, 2]
    with refuses(INPUT_CUT):
        main(connection(b""))


def test_rows_are_refused_where_their_end_cannot_be_told() -> None:
    with refuses(SINK_CONFIG, match=r"main\(infile"):
        list(whole(iter([1])))
