"""Upgrades to a good version and to three broken ones, each judged order by order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.errors import UPGRADE_ROLLED_BACK
from airflow_flinkstyle.jobs.upgrade.health import Bounds
from testbed.refusals import refuses
from testbed.waiting import wait_until
from tests.e2e.upgrades import SCRIPTS, upgrade

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testbed.judge import StateReader
    from testbed.scenario import OrdersScenario

pytestmark = pytest.mark.e2e


def test_a_new_version_goes_on_where_the_old_one_stopped(scenario: OrdersScenario, reader: StateReader):
    scenario.start_producer()
    old = scenario.start()
    report = upgrade(scenario, "orders_job_v2", first_commit_timeout_s=180).run()
    assert report.generation == old + 1
    assert report.first_batch is not None
    assert report.rehearsal is not None
    assert report.rehearsal["summary"].startswith("rehearsed: ")
    assert report.rehearsal["summary"].endswith("state schema unchanged")
    v2_output = scenario.folder / "output"
    wait_until("v2 writes", lambda: any(v2_output.glob("v2-batch=*/_SUCCESS")))
    goes_back_from_where_it_is(scenario)
    judgement = scenario.judge(reader, scenario.old)
    assert judgement.right, judgement


def goes_back_from_where_it_is(scenario: OrdersScenario) -> None:
    """Let a version that is killed while it is observed be replaced by the one before it."""
    again = replace(upgrade(scenario, "orders_job_v2", first_commit_timeout_s=180), standby="none")
    again.journal = again.journal.part("again")
    again.spec = scenario.spec
    again.bounds = Bounds(observe_s=300)
    observe = again._observe

    def killed() -> Mapping[str, Any]:
        scenario.client.drivers.end_driver(scenario.running().run.generation)
        return observe()

    again._observe = killed  # type: ignore[method-assign]
    with refuses(UPGRADE_ROLLED_BACK, match="died and was started again, 1 times") as failed:
        again.run()
    assert "where the new one stopped" in failed.value.state_after
    assert scenario.running().run.claim.launch["spec"]["script"] == str(SCRIPTS / "orders_job_v2.py")
    scenario.wait_commits(2)


@pytest.mark.nightly
def test_a_broken_version_goes_back_by_itself(scenario: OrdersScenario, reader: StateReader):
    """One job and four broken versions, one after another; two of them never stop it."""
    scenario.start_producer()
    scenario.start()
    for script, said in (
        ("raises_at_import", "raised at import"),
        ("raises_in_plan", "broken: a row raised"),
    ):
        before = scenario.running().run
        with refuses(UPGRADE_ROLLED_BACK, match="it was never stopped") as failed:
            upgrade(scenario, script, first_commit_timeout_s=180).run()
        assert said in str(failed.value)
        after = scenario.running().run
        assert (after.generation, after.incarnation) == (before.generation, before.incarnation)
        scenario.wait_commits(2)
    for script, first_commit_timeout_s, said in (
        ("raises_in_first_batch", 180, "is broken: batch"),
        ("commits_nothing", 45, "committed none within 45 s"),
    ):
        with refuses(UPGRADE_ROLLED_BACK) as failed:
            upgrade(scenario, script, first_commit_timeout_s=first_commit_timeout_s).run()
        assert said in str(failed.value)
        assert scenario.running().run.claim.launch["spec"]["script"] == scenario.spec.script
        scenario.wait_commits(2)
    judgement = scenario.judge(reader, scenario.old)
    assert judgement.right, judgement
