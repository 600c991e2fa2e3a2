from __future__ import annotations

from typing import Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.answers.rules import source_changes
from airflow_flinkstyle.rewrite.source_changes import RemoveSource, ReorderSources
from tests.unit.rewrite.golden_savepoint import Savepoint


def changes(asked: Any) -> list[Any]:  # noqa: ANN401  (whatever a DAG says)
    savepoint = Savepoint("join")

    def kafka(conn_id: str) -> Any:  # noqa: ANN401
        raise AssertionError(f"{conn_id} was opened")

    return source_changes(asked, savepoint.manifest, savepoint.repository, kafka)


def test_sources_to_remove_and_their_order_are_read_by_query():
    found = changes({"q": {"remove": [0], "order": ["1"]}})
    assert found == [RemoveSource(query="q", source="0"), ReorderSources(query="q", order=("1",))]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ([], "queries as a mapping"),
        ({"q": ["0"]}, "changes of query q as a mapping of any of remove, order, replace, add"),
        ({"q": {"drop": ["0"]}}, "'drop'"),
        ({"q": {"remove": {"0": 1}}}, "a list of names"),
        ({"q": {"add": ["2"]}}, "sources as a mapping"),
        ({"q": {"add": {"2": {"topic": "x"}}}}, "the place of source 2"),
        ({"q": {"add": {"2": {"kafka_conn_id": "new", "start": "latest"}}}}, "there is 'no topics'"),
    ],
)
def test_changes_that_cannot_be_understood_are_refused_before_a_cluster_is_asked(asked: Any, named: str):  # noqa: ANN401
    with pytest.raises(BadInputError, match=named):
        changes(asked)


def test_start_that_cannot_be_understood_is_refused_before_a_cluster_is_asked():
    place = {"kafka_conn_id": "new", "topics": ["x"], "start": "yesterday"}
    with pytest.raises(BadInputError, match="yesterday"):
        changes({"q": {"replace": {"0": place}}})
