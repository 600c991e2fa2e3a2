"""What a job has written into a table since a savepoint, and when it cannot be taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_flinkstyle.checkpoint.table_position import TableCommit, TablePosition
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.savepoint.manifest import QuerySnapshot
from airflow_flinkstyle.savepoint.tables import TableChange, since_savepoint
from airflow_flinkstyle.types import BatchId

OWN = ("q-1", "q-2")
AT = TablePosition(format="delta", table_id=None, version=2, files_read=None)
QUERY = QuerySnapshot(
    name="copy", query_id="q-1", batch_id=BatchId(5), checkpoint_location="x", planned_offsets=None,
    pinned_confs={}, kafka={}, sink="delta", sink_table=AT, files=(),
)  # fmt: skip


def line(*writers: str | None, saved: str | None = "q-1") -> list[TableCommit]:
    """Return versions from 1 on, of which 2 is the savepoint's: ``-`` compacts, None is somebody else."""
    commits = [
        TableCommit(
            version=number, parent=number - 1, query_id=writer, batch=None, changes=writer != "-",
            rows=10, what="WRITE",
        )
        for number, writer in enumerate([None, saved, *writers], start=1)
    ]  # fmt: skip
    return commits[::-1]


@pytest.mark.parametrize(
    ("writers", "to", "commits"),
    [
        ((), 2, 0),
        (("q-1",), 2, 1),
        (("q-1", "-", "q-2", "-"), 2, 2),
        ((None, "-", "q-1", "q-2"), 4, 2),  # what others wrote before the job's first version since stays
        ((None, None), 4, 0),
    ],
)
def test_what_the_job_wrote_since_is_taken_back_and_nothing_else(
    writers: tuple[str | None, ...], to: int, commits: int
):
    found, now = since_savepoint(QUERY, line(*writers), OWN), 2 + len(writers)
    assert found == TableChange(now=now, to=to, commits=commits, rows=10 * commits)
    assert str(found).startswith(f"{10 * commits} rows in" if commits else "no rows")


@pytest.mark.parametrize(
    ("writers", "found"),
    [(("q-1", None), r"found some of others: 4 \(WRITE\)"), (("q-1", *[None] * 7), "8 .WRITE. and 2 more")],
)
def test_table_that_others_have_written_to_since_is_refused(writers: tuple[str | None, ...], found: str):
    with pytest.raises(FlinkstyleError, match=found) as refused:
        since_savepoint(QUERY, line(*writers), OWN)
    assert refused.value.code == "TABLE_RESTORE"
    assert "by hand" in refused.value.remedy


def test_table_of_which_the_history_does_not_lead_to_the_savepoint_is_refused():
    with pytest.raises(FlinkstyleError, match="does not lead there"):
        since_savepoint(QUERY, line("q-1", "q-1")[:2], OWN)  # the older versions have expired
    with pytest.raises(FlinkstyleError, match="or it is another table"):
        since_savepoint(QUERY, line("q-1", saved="q-9"), OWN)
    with pytest.raises(FlinkstyleError, match="had not written yet"):
        since_savepoint(replace(QUERY, sink_table=None), line("q-1"), OWN)


def test_unknown_number_of_rows_is_said():
    commits = [replace(one, rows=None) for one in line("q-1")]
    assert str(since_savepoint(QUERY, commits, OWN)).startswith("an unknown number of rows in 1 versions")
