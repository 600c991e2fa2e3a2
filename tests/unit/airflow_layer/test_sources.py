from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.sources import source_changes
from airflow_flinkstyle.operators import ChangeSourcesOperator
from airflow_flinkstyle.rewrite.source_changes import RemoveSource, ReorderSources
from tests.unit.airflow_layer.conftest import a_context
from tests.unit.rewrite.golden_savepoint import Savepoint

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


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


def operator(world: World, savepoint_id: str, wishes: dict[str, Any], **kwargs: Any) -> ChangeSourcesOperator:
    return ChangeSourcesOperator(
        task_id="change", job=world.job, savepoint_id=savepoint_id, changes={"orders": wishes}, **kwargs
    )


def test_operator_writes_a_savepoint_and_a_retry_finds_it(world: World):
    world.start()
    world.logs.produce(5)
    stopped = world.client().stop("stop", savepoint=True, timeout_s=10)
    context = a_context("change")
    order = {"order": ["0"]}
    assert operator(world, stopped.savepoint_id, order, preview=True).execute(context) == stopped.savepoint_id
    assert len(world.repository.manifests()) == 1
    changed = operator(world, stopped.savepoint_id, order).execute(context)
    assert operator(world, stopped.savepoint_id, order).execute(context) == changed
    manifest = world.repository.read(changed)
    assert manifest.parent == stopped.savepoint_id
    entry = manifest.queries[0].file(f"offsets/{manifest.queries[0].batch_id}")
    assert list(offset_log.parse(world.repository.read_blob(entry.blob).decode()).sources) == ["0"]
    with pytest.raises(AirflowFailException, match="SOURCE_CHANGE"):
        operator(world, stopped.savepoint_id, {"remove": ["7"]}).execute(context)
