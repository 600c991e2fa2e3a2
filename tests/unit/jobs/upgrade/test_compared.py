"""Two versions that are compared beside the job, which does not notice, and an upgrade that waits for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.comparison import (
    CompareAsked,
    Version,
    as_values,
    compare_asked,
    compare_versions,
    require_expected,
    savepoint_to_compare,
)
from airflow_flinkstyle.jobs.errors import STEP_TIMEOUT
from airflow_flinkstyle.jobs.journal import has_ended, read_phases
from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch
from airflow_flinkstyle.protocol.comparison_records import COMPARE, Compare
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.types import Generation
from testbed.refusals import refuses
from tests.comparisons import SAME, a_comparison
from tests.unit.jobs.cutovers import an_upgrade, save

if TYPE_CHECKING:
    from airflow_flinkstyle.protocol.comparison_records import Comparison
    from tests.unit.jobs.conftest import Mood, World

ASKED = CompareAsked(batches=2, records=100, timeout_s=20.0)


def compare(world: World, *, key: str = "dag-run", asked: CompareAsked = ASKED) -> Comparison:
    client = world.client()
    spec, target = recorded_launch(client.view)
    old, new = Version(spec=spec, target=target), Version(spec=world.spec("v2.py"), target=world.target())
    savepoint_id = savepoint_to_compare(client, "latest")
    return compare_versions(client, old, new, key=key, savepoint_id=savepoint_id, asked=asked)


def test_versions_that_are_the_same_take_two_drivers_and_the_job_runs_on(world: World):
    client = world.start()
    saved = save(world)
    found = compare(world)
    assert (found.verdict, found.savepoint_id, found.old, found.new) == ("same", saved, 2, 3)
    assert "same (10 records, 10 rows)" in found.as_markdown()
    world.until(lambda: world.alive() == [1])
    assert client.view.status().run.generation == 1
    world.logs.produce(5)
    world.judge()


def test_old_version_runs_once_more_where_they_differ(world: World, mood: type[Mood]):
    world.start()
    save(world)
    world.moods["v2.py"] = mood(computes_otherwise=3)
    found = compare(world)
    assert (found.verdict, found.old, found.new, found.again) == ("differs", 2, 3, 4)
    assert "3 changed" in found.summary()
    with pytest.raises(FlinkstyleError, match="3 changed") as refused:
        require_expected(as_values(found), "same", job=world.job)
    assert refused.value.code == "VERSIONS_DIFFER"
    require_expected(as_values(found), "differs", job=world.job)


def test_version_that_fails_on_the_records_fails_the_comparison(world: World, mood: type[Mood]):
    world.start()
    save(world)
    world.moods["v2.py"] = mood(fails_in_batch=True)
    with pytest.raises(FlinkstyleError, match=r"The new version of job .* ZeroDivisionError") as failed:
        compare(world)
    assert failed.value.code == "COMPARISON_FAILED"
    world.moods.clear()
    assert compare(world).verdict == "same", "a retry begins anew"


def test_driver_that_follows_one_that_has_failed_says_so(world: World, mood: type[Mood]):
    client = world.start()
    saved = save(world)
    world.moods["v1.py"] = mood(fails_in_batch=True)
    with pytest.raises(FlinkstyleError, match="ZeroDivisionError"):
        compare(world)
    asked = Compare(part="new", old=Generation(2)).as_setting()
    follower = client.starts.standby(
        replace(world.spec("v2.py"), conf={COMPARE: asked}),
        world.target(),
        claim_key="late",
        prepare_savepoint_id=saved,
        rehearse=Rehearse(batches=2, records=100, only=True),
    )
    world.until(lambda: world.board.rehearsal(follower.generation) is not None)
    told = world.board.rehearsal(follower.generation)
    assert told is not None
    assert told.failure is not None
    assert (told.failure[0], "ZeroDivisionError" in told.failure[1]) == ("COMPARED_RUN", True)


def test_versions_that_found_nothing_to_read_are_not_comparable(world: World, mood: type[Mood]):
    world.start()
    save(world)
    world.moods["v1.py"] = mood(finds_no_records=True)
    found = as_values(compare(world))
    assert found["verdict"] == "not comparable"
    with pytest.raises(FlinkstyleError, match="no records to read") as refused:
        require_expected(found, "same", job=world.job)
    assert refused.value.code == "NOT_COMPARABLE"


def test_comparison_that_never_ends_ends_its_drivers(world: World, mood: type[Mood]):
    world.start()
    save(world)
    world.moods["v2.py"] = mood(hangs_in_batch=True)
    with refuses(STEP_TIMEOUT, match=r"was expected to end within 0.5 s"):
        compare(world, asked=CompareAsked(timeout_s=0.5))
    world.until(lambda: world.alive() == [1])


def test_upgrade_to_a_version_that_differs_ends_before_anything_is_begun(world: World, mood: type[Mood]):
    world.start()
    world.moods["v2.py"] = mood(computes_otherwise=3)
    with pytest.raises(FlinkstyleError, match="never stopped") as refused:
        an_upgrade(world, compare=ASKED).run()
    assert refused.value.code == "VERSIONS_DIFFER"
    world.until(lambda: world.alive() == [1])
    assert read_phases(world.store, world.job) == {}, "nothing that would keep old records for ever"
    report = an_upgrade(world, compare=ASKED, expect="differs").run()
    assert report.comparison is not None
    assert report.comparison["verdict"] == "differs"
    assert "3 changed" in report.as_markdown()
    assert has_ended(read_phases(world.store, world.job)["u1"])
    world.logs.produce(5)
    world.judge()


def test_job_without_a_savepoint_has_none_to_compare_from(world: World):
    client = world.start()
    with pytest.raises(BadInputError, match="found none"):
        savepoint_to_compare(client, "latest")


@pytest.mark.parametrize(
    "bad",
    [{"batches": -1}, {"batches": "x"}, {"records": 0}, {"keys": "nonsense"}, {"tolerance": {"a": "b"}}],
    ids=str,
)
def test_bad_answers_about_a_comparison_are_refused(bad: dict[str, Any]):
    with pytest.raises(BadInputError, match="A comparison should be of"):
        compare_asked(**{"batches": 1, "records": 1, **bad})


def test_answers_about_a_comparison_come_as_values_or_as_text():
    asked = compare_asked(
        batches="2",
        records="5",
        keys='{"totals": ["k", "v"]}',
        ignore="at; tags:order",
        tolerance={"p": "0.5"},
    )
    assert asked is not None
    assert (asked.how.keys, asked.how.ignore) == ({"totals": ("k", "v")}, ("at", "tags:order"))
    assert asked.how.tolerance == {"p": 0.5}
    assert compare_asked(batches=0, records=1) is None


def test_summary_says_what_was_not_compared():
    found = a_comparison(
        queries={"totals": replace(SAME, untested=("Its state: Spark 3.5.8 cannot read it.",))}
    )
    assert found.verdict == "same"
    assert found.summary().endswith(": totals: not compared: Its state: Spark 3.5.8 cannot read it")
