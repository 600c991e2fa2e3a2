"""What a repartition requires of a savepoint, and of what it makes of it."""

from __future__ import annotations

from dataclasses import replace

from airflow_flinkstyle.savepoint.manifest import FileEntry, QuerySnapshot
from airflow_flinkstyle.state.errors import REPARTITION
from airflow_flinkstyle.state.repartition import operators_of, require_all_listed, require_planned
from airflow_flinkstyle.types import BatchId
from testbed.refusals import refuses

QUERY = QuerySnapshot(
    name="totals",
    query_id="q",
    batch_id=BatchId(7),
    checkpoint_location="x",
    planned_offsets="v1\n{}\n{}",
    pinned_confs={},
    kafka={},
    files=tuple(
        FileEntry(path=path, size_bytes=1, blob=path, digest=None)
        for path in ("offsets/7", "state/0/0/8.zip", "state/1/0/8.zip", "state/1/_metadata/metadata")
    ),
)


def test_operator_that_spark_does_not_list_is_named_since_nobody_would_compare_it():
    require_all_listed(QUERY, {0, 1})
    with refuses(REPARTITION, match="of query totals that has state, found nothing of 1"):
        require_all_listed(QUERY, {0})


def test_operators_are_those_that_have_files_of_state_whatever_spark_lists():
    """Spark 3.5 lists none; a search for a key that read the first alone would miss the others."""
    assert operators_of(QUERY) == {0, 1}
    assert operators_of(replace(QUERY, files=())) == set()


def test_planned_batch_whose_number_is_taken_is_refused():
    require_planned(QUERY, QUERY)
    shifted = replace(QUERY, batch_id=BatchId(8))
    with refuses(REPARTITION, match=r"Query totals was expected .* batch 8 was planned") as error:
        require_planned(QUERY, shifted)
    assert "complete" in error.value.remedy
    require_planned(replace(QUERY, planned_offsets=None), shifted)
