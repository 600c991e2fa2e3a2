"""A range of a job's records run once more, as a job of its own beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.core.commits.batch_watch import ON
from airflow_flinkstyle.agent.core.errors import DROPPED
from airflow_flinkstyle.agent.core.run import replay as replaying
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.errors import DriverFailedError, JobNotRunningError
from airflow_flinkstyle.jobs.replay import COMMIT_OFFSETS, ReplayAsked, await_replay, replay_job
from airflow_flinkstyle.jobs.request_slot import CutMode
from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch
from airflow_flinkstyle.jobs.upgrade.repartition import with_changes
from airflow_flinkstyle.protocol.replay_records import REPLAY
from airflow_flinkstyle.savepoint.compat import state_changes_asked, state_changes_due
from airflow_flinkstyle.savepoint.errors import SavepointMissingError
from tests.unit.jobs.conftest import Logs, World
from tests.unit.jobs.drivers import QUERY, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow_flinkstyle.jobs.spec import JobSpec
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.types import Generation
    from tests.unit.jobs.drivers import Mood

FIRST, MORE = 10, 30


class Beside:
    """A job with a savepoint behind its first records, and a job that does not exist yet."""

    def __init__(self, world: World) -> None:
        self.world, self.job = world, world.start(FIRST)
        self.savepoint_id = self.take("first")
        world.logs.produce(MORE)
        world.until(lambda: len(world.logs.counted) == FIRST + MORE)
        self.replay = World(world.folder, job="orders-replay", store=world.store)
        self.replay.logs.records = world.logs.records

    def take(self, key: str) -> str:
        pending = self.job.requests.request_savepoint(key)
        return self.job.requests.finish_savepoint(pending, timeout_s=10.0).savepoint_id

    def start(
        self,
        until: str | Mapping[str, Any],
        *,
        key: str = "a task",
        spec: JobSpec | None = None,
        **asked: Any,
    ) -> Generation:
        said = {"savepoint_id": self.savepoint_id, "records": 7, "own_outputs": (QUERY,), **asked}
        return replay_job(
            self.job,
            self.replay.client(),
            spec or self.world.spec(),
            self.world.target(),
            key=key,
            asked=ReplayAsked(until=until, **said),
        )

    def end(self, generation: Generation) -> dict[str, Any]:
        return await_replay(self.replay.client(), generation, timeout_s=20.0)

    def counted(self) -> dict[int, int]:
        return dict(sorted(self.replay.logs.counted.items()))

    @staticmethod
    def position(record: int) -> int:
        return Logs().base("old") + record


@pytest.fixture
def beside(world: World) -> Iterator[Beside]:
    found = Beside(world)
    yield found
    found.replay.kill_all()


def of_records(first: int, behind: int) -> dict[int, int]:
    return dict.fromkeys(range(first, behind), 1)


@pytest.mark.parametrize(
    "until",
    [
        lambda one, last: {TOPIC: {"0": one.position(last)}},
        lambda one, last: json.dumps({TOPIC: {"0": one.position(last)}}),
        # The small Kafka's records are as old as their offsets say.
        lambda one, last: str(one.position(last)),
    ],
    ids=["offsets", "as JSON", "a time"],
)
def test_range_is_run_once_in_several_batches_and_the_replay_closes(
    beside: Beside, until: Callable[[Beside, int], str | Mapping[str, Any]]
) -> None:
    job_before = dict(beside.world.logs.counted)
    generation = beside.start(until(beside, 25))
    found = beside.end(generation)
    assert (found["job"], found["queries"][QUERY]["offsets"]) == ("orders-replay", 15)
    assert beside.counted() == of_records(FIRST, 25)
    assert len(beside.replay.logs.committed_by) == 3
    assert dict(beside.world.logs.counted) == job_before
    beside.world.until(lambda: beside.world.alive() == [1])
    claim = beside.replay.client().view.claim(generation)
    conf = claim.launch["spec"]["conf"]
    assert (conf[COMMIT_OFFSETS], REPLAY in conf, COMMIT_OFFSETS) == ("false", True, ON)


def test_later_savepoint_ends_the_range_and_a_retry_finds_the_replay(beside: Beside) -> None:
    later = beside.take("later")
    generation = beside.start(later)
    found = beside.end(beside.start(later))
    assert (found["generation"], beside.counted()) == (generation, of_records(FIRST, FIRST + MORE))
    assert beside.end(beside.start(later)) == found
    assert [slot.head for slot in [beside.replay.board.current().value]] == [generation]
    order = beside.replay.board.takeover_order(generation)
    assert order is not None
    assert (order.parent.generation, order.rewind) == (None, "fork")


def test_driver_that_died_is_started_again_and_ends_where_it_would_have(
    beside: Beside, mood: type[Mood]
) -> None:
    """Records that came meanwhile are not in the range, though they are older than its end says."""
    beside.replay.moods["v1.py"] = stuck = mood(hangs_in_batch=True)
    generation = beside.start("100000")
    beside.replay.until(lambda: beside.replay.board.replay_ranges())
    stuck.hangs_in_batch = False
    beside.replay.until(lambda: beside.replay.logs.counted)
    beside.replay.kill(generation)
    beside.world.logs.produce(5)
    found = beside.end(generation)
    assert found["queries"][QUERY]["offsets"] == MORE
    assert beside.counted() == of_records(FIRST, FIRST + MORE)


def test_replay_that_is_stopped_leaves_the_rest_and_continues_to_its_end(
    beside: Beside, mood: type[Mood]
) -> None:
    beside.replay.moods["v1.py"] = stuck = mood(hangs_in_batch=True)
    generation = beside.start({TOPIC: {"0": beside.position(30)}})
    client = beside.replay.client()
    client.drivers.wait_running(generation, timeout_s=10)
    beside.replay.until(lambda: beside.replay.drivers[1].streams)
    pending = client.requests.request_stop("stop", savepoint=True)
    beside.replay.until(lambda: client.view.board.request(generation).value.state == "accepted")
    stuck.hangs_in_batch = False
    _, ended = client.requests.wait(pending, timeout_s=10.0)
    assert (ended.outcome, beside.counted()) == ("done", of_records(FIRST, 17))
    with pytest.raises(JobNotRunningError):
        beside.end(generation)
    handle = client.starts.start(*recorded_launch(client.view), claim_key="again")
    beside.end(handle.generation)
    assert beside.counted() == of_records(FIRST, 30)


@pytest.mark.parametrize(
    ("until", "found"),
    [
        ({TOPIC: {"0": 105}}, "orders-0 at 105, and the savepoint at 110"),
        ({TOPIC: {"0": 110}}, "none up to there"),
        ({TOPIC: {"7": 200}}, "orders-7"),
        ({"a": 1}, "offsets by topic"),
        ("{nothing", "offsets by topic"),
        ("2026-11-27T10:00:00", "time with its zone"),
    ],
)
def test_end_that_is_none_is_refused_before_anything_starts(
    beside: Beside, until: str | Mapping[str, Any], found: str
) -> None:
    with pytest.raises(BadInputError, match=found):
        beside.start(until)
    assert beside.replay.board.generations() == []
    assert not beside.replay.repository.ids()


def test_what_cannot_be_replayed_is_refused_before_anything_starts(beside: Beside) -> None:
    until = {TOPIC: {"0": beside.position(20)}}
    with pytest.raises(SavepointMissingError):
        beside.start("tomorrow")
    with pytest.raises(BadInputError, match="no record shows it for orders"):
        beside.start(until, own_outputs=())
    with pytest.raises(BadInputError, match="other"):
        beside.start(until, own_outputs=(QUERY, "other"))
    beside.end(beside.start(until))
    with pytest.raises(BadInputError, match="orders-replay has a history"):
        beside.start(until, key="another task")
    beside.replay = beside.world
    with pytest.raises(BadInputError, match="name of its own"):
        beside.start(until)


@pytest.mark.parametrize("until", [{TOPIC: {"0": 500}}, "105"], ids=["not written yet", "before"])
def test_driver_refuses_a_range_that_its_log_does_not_have(
    beside: Beside, until: str | Mapping[str, Any]
) -> None:
    generation = beside.start(until)
    with pytest.raises(DriverFailedError, match="REPLAY_RANGE"):
        beside.end(generation)
    assert beside.counted() == {}


def test_query_that_reads_no_kafka_is_refused(world: World, mood: type[Mood]) -> None:
    world.moods["v1.py"] = mood(has_ticks=True)
    beside = Beside(world)
    with pytest.raises(BadInputError, match="found none in ticks"):
        beside.start({TOPIC: {"0": beside.position(20)}})


def test_script_with_another_query_than_the_savepoints_is_refused_by_its_driver(
    beside: Beside, mood: type[Mood]
) -> None:
    beside.replay.moods["v1.py"] = mood(has_ticks=True)
    generation = beside.start({TOPIC: {"0": beside.position(20)}})
    with pytest.raises(DriverFailedError, match=r"REPLAY_SOURCE.*the source rate"):
        beside.end(generation)
    assert beside.counted() == {}


def with_another_query(beside: Beside) -> Manifest:
    """Publish a savepoint that has a second query, which no script here starts."""
    saved = beside.world.repository.read(beside.savepoint_id)
    (query,) = saved.queries
    other = replace(query, name="more")
    both = replace(saved, savepoint_id="sp-both", queries=(query, other))
    beside.world.repository.publish(both)
    return both


@pytest.mark.parametrize("dropped", [False, True])
def test_replay_in_which_a_query_was_not_started_has_failed_unless_it_is_dropped_by_name(
    beside: Beside, monkeypatch: pytest.MonkeyPatch, dropped: bool
) -> None:
    both = with_another_query(beside)
    for patience in ("_OTHERS_S", "_SILENT_S"):
        monkeypatch.setattr(replaying, patience, 0.3)
    script = beside.world.spec()
    conf = {**script.conf, DROPPED: "more"} if dropped else script.conf
    generation = beside.start(
        {TOPIC: {"0": beside.position(20)}},
        savepoint_id=both.savepoint_id,
        own_outputs=(QUERY, "more"),
        spec=replace(script, conf=conf),
    )
    if dropped:
        assert beside.end(generation)["queries"].keys() == {QUERY}
    else:
        with pytest.raises(DriverFailedError, match=r"REPLAY_SOURCE.*start query more of the savepoint, too"):
            beside.end(generation)
    assert beside.counted() == of_records(FIRST, 20)


@pytest.mark.parametrize(("up_to", "due"), [(1, True), (0, False)])
def test_savepoint_from_before_a_change_of_the_state_gets_it_in_a_replay(
    beside: Beside, up_to: int, due: bool
) -> None:
    """The replay counts its generations from 1 again: the number of the job's says nothing to it."""
    script = with_changes(beside.world.spec(), "cents:of_orders", asked="u1", before=up_to)
    generation = beside.start({TOPIC: {"0": beside.position(20)}}, spec=script)
    conf = beside.replay.client().view.claim(generation).launch["spec"]["conf"]
    handed = beside.replay.repository.read(beside.savepoint_id)
    asked = state_changes_asked(conf)
    assert state_changes_due(handed, asked) == list(asked)
    assert [one.changes for one in asked] == (["cents:of_orders"] if due else [])


def test_later_savepoint_without_a_query_of_the_first_is_no_end(beside: Beside) -> None:
    both, later = with_another_query(beside), beside.take("later")
    with pytest.raises(BadInputError, match="with source 0 of query more"):
        beside.start(later, savepoint_id=both.savepoint_id, own_outputs=(QUERY, "more"))
    assert beside.counted() == {}


def test_savepoint_of_a_replay_leaves_it_bounded_and_an_aligned_one_is_refused(
    beside: Beside, mood: type[Mood]
) -> None:
    beside.replay.moods["v1.py"] = stuck = mood(hangs_in_batch=True)
    generation = beside.start({TOPIC: {"0": beside.position(35)}})
    client = beside.replay.client()
    client.drivers.wait_running(generation, timeout_s=10)
    aligned = client.requests.request_savepoint("aligned", mode=CutMode(alignment="aligned"))
    beside.replay.until(lambda: client.view.board.request(generation).value.state == "accepted")
    stuck.hangs_in_batch = False
    _, ended = client.requests.wait(aligned, timeout_s=10.0)
    assert "QUERY_ENDED" in ended.detail
    beside.end(generation)
    assert beside.counted() == of_records(FIRST, 35)
