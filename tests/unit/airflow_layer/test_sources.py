from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.operators import ChangeSourcesOperator
from tests.manifests import manifests_of
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


def operator(world: World, savepoint_id: str, wishes: dict[str, Any], **kwargs: Any) -> ChangeSourcesOperator:
    return ChangeSourcesOperator(
        task_id="change", job=world.job, savepoint_id=savepoint_id, changes={"orders": wishes}, **kwargs
    )


def test_operator_writes_a_savepoint_and_a_retry_finds_it(world: World):
    world.start()
    world.logs.produce(5)
    stopped = world.client().requests.stop("stop", savepoint=True, timeout_s=10)
    context = a_context("change")
    order = {"order": ["0"]}
    assert operator(world, stopped.savepoint_id, order, preview=True).execute(context) == stopped.savepoint_id
    assert len(manifests_of(world.repository)) == 1
    changed = operator(world, stopped.savepoint_id, order).execute(context)
    assert operator(world, stopped.savepoint_id, order).execute(context) == changed
    manifest = world.repository.read(changed)
    assert manifest.parent == stopped.savepoint_id
    entry = manifest.queries[0].file(f"offsets/{manifest.queries[0].batch_id}")
    assert list(offset_log.parse(world.repository.read_file(entry).decode()).sources) == ["0"]
    with pytest.raises(AirflowFailException, match="SOURCE_CHANGE"):
        operator(world, stopped.savepoint_id, {"remove": ["7"]}).execute(context)
