"""What a migration's form leaves open is found: by the job, by connections, by MirrorMaker's topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.migration.form import MigrationForm
from airflow_flinkstyle.jobs.migration.form_reader import LookUps, fill_in
from airflow_flinkstyle.kafka.errors import ClusterUnreachableError
from airflow_flinkstyle.kafka.mirror.found import UNNAMED, FoundMirror
from tests.unit.jobs.conftest import Mood

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.unit.jobs.conftest import World

LEADS_TO = {"kafka_new": "new", "kafka_old": "old", "kafka_other": "other"}
ONE = FoundMirror(source_aliases=("dc1",), target_aliases=("dc2",), replication_policy="default")


def look_ups(*, allowed: Sequence[str] = tuple(LEADS_TO), mirror: FoundMirror = ONE, **leads: str) -> LookUps:
    """Connections that lead to clusters; the one called ``gone`` does not answer."""
    clusters = {**LEADS_TO, **leads}

    def cluster_id(conn_id: str) -> str:
        if clusters[conn_id] == "gone":
            raise ClusterUnreachableError("It was expected to answer.", "Nothing.", "Start it.")
        return clusters[conn_id]

    return LookUps(
        servers=lambda conn_id: f"{conn_id}:9092",
        cluster_id=cluster_id,
        find_mirror=lambda source, target, topics, *, offsets_topic: mirror,
        allowed=allowed,
    )


def filled(world: World, found: LookUps | None = None, **answers: Any) -> MigrationForm:
    form = MigrationForm(job=world.job, target_kafka_conn_id="kafka_new", **answers)
    return fill_in(form, world.client().view, found or look_ups())


def test_form_that_names_the_target_alone_is_completed(world: World):
    world.start()
    form = filled(world)
    assert (form.source_kafka_conn_id, form.script_servers, form.isolation) == (
        *("kafka_old", "old:9092", "read_committed"),
    )
    assert form.mirror == {"source_alias": "dc1", "target_alias": "dc2", "replication_policy": "default"}


def test_what_a_person_answers_counts(world: World):
    world.start()
    mirror = {"source_alias": "mine", "target_alias": "yours"}
    told = {"source_kafka_conn_id": "kafka_other", "script_servers": "x:1", "isolation": "read_uncommitted"}
    form = filled(world, **told, mirror=mirror)
    assert {name: getattr(form, name) for name in told} == told
    assert form.mirror == mirror
    part = filled(world, mirror={"source_alias": "mine", "offsets_topic": "connect-offsets"})
    assert part.mirror == {
        "source_alias": "mine",
        "offsets_topic": "connect-offsets",
        "target_alias": "dc2",
        "replication_policy": "default",
    }


def test_job_that_was_moved_before_is_known_by_what_its_script_says(world: World):
    client = world.client()
    handle = client.starts.start(world.spec(new=True), world.target(), claim_key="moved")
    client.drivers.wait_running(handle.generation, timeout_s=10)
    world.until(lambda: world.board.heartbeat(handle.generation).value.queries)
    there = {"kafka_new": "third", "kafka_now": "new"}
    form = filled(world, look_ups(allowed=("kafka_now",), **there))
    assert (form.source_kafka_conn_id, form.script_servers) == ("kafka_now", "old:9092")


@pytest.mark.parametrize("way", ["new_identity", "producers_first"])
def test_mirror_is_looked_for_only_where_positions_are_proved(world: World, way: str):
    world.start()
    assert filled(world, way=way).mirror is None
    some = filled(world, way=way, sources={"orders/0": {"way": "proved"}})
    assert some.mirror is not None
    for told in ({"source_alias": "none"}, {"keeps_offsets": True}):
        assert filled(world, mirror=told).mirror == told


def test_mirror_that_no_topic_tells_of_is_left_to_the_preflight(world: World):
    world.start()
    none = FoundMirror(source_aliases=(), target_aliases=("dc2",), replication_policy="identity")
    assert filled(world, look_ups(mirror=none)).mirror is None
    several = FoundMirror(source_aliases=("a",), target_aliases=("b", "c"), replication_policy="identity")
    found = filled(world, look_ups(mirror=several)).mirror
    assert found is not None
    assert found["target_alias"] == UNNAMED, "no proof needs it"


def test_several_mirrors_are_for_a_person_to_choose_from(world: World):
    world.start()
    several = FoundMirror(source_aliases=("a", "b"), target_aliases=(), replication_policy="identity")
    with pytest.raises(BadInputError, match=r"source_alias .* left open, to be found; found a, b"):
        filled(world, look_ups(mirror=several))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (look_ups(allowed=()), "no connection to cluster old among none"),
        (look_ups(allowed=("kafka_other",)), "no connection to cluster old among kafka_other"),
        (look_ups(kafka_old="gone"), "no connection to cluster old among kafka_old, kafka_other"),
        (look_ups(kafka_new="old"), "reads the clusters none but old, where it is to go"),
    ],
    ids=["nothing listed", "others listed", "it does not answer", "the target is where it reads"],
)
def test_cluster_to_leave_that_is_not_found_is_asked_for(world: World, found: LookUps, says: str):
    world.start()
    with pytest.raises(BadInputError, match=says) as refused:
        filled(world, found)
    assert "source_kafka_conn_id" in refused.value.remedy


def test_agent_of_before_leaves_what_it_does_not_say_as_it_was(world: World):
    world.moods["v1.py"] = Mood(tells_no_reading=True)
    world.start()
    form = filled(world)
    assert (form.source_kafka_conn_id, form.script_servers, form.isolation) == (
        *("kafka_old", None, "read_uncommitted"),
    )


def test_job_that_does_not_run_says_nothing(world: World):
    form = filled(world)
    assert (form.source_kafka_conn_id, form.mirror) == (None, None)
