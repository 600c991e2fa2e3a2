from __future__ import annotations

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.keys import request_key, run_key
from airflow_flinkstyle.hooks.launches import arguments, mapping, next_version, rewind
from airflow_flinkstyle.hooks.migration import moved_spec
from airflow_flinkstyle.hooks.rules import mirror_if_named, mirror_settings, proof_request
from airflow_flinkstyle.hooks.urls import manifest_url
from airflow_flinkstyle.jobs.spec import JobSpec
from airflow_flinkstyle.protocol.board import check_name
from tests.unit.airflow_layer.conftest import a_context

pytestmark = pytest.mark.airflow

SPEC = JobSpec(name="job", script="v1.py", args=("a",), conf={"x": "1", "y": "2"}, checkpoint_root="/cp")
SERVERS = "kafka.bootstrap.servers"


def move(spec: JobSpec, old: str, new: str, script: str | None = None) -> JobSpec:
    return moved_spec(spec, old_servers=old, script_servers=script or old, options={SERVERS: new})


def test_moving_a_job_sets_the_servers_where_the_script_names_the_old_ones():
    (rule,) = move(SPEC, "a:1", "b:2").overrides
    assert (rule.role, rule.servers, rule.options) == ("source", "a:1", {SERVERS: "b:2"})


def test_moving_again_changes_nothing():
    moved = move(SPEC, "a:1", "b:2")
    assert move(moved, "a:1", "b:2") == moved


def test_second_migration_still_matches_what_the_script_writes():
    (rule,) = move(move(SPEC, "a:1", "b:2"), "b:2", "c:3").overrides
    assert (rule.servers, rule.options) == ("a:1", {SERVERS: "c:3"})


def test_script_may_write_the_servers_otherwise_than_the_connection():
    (rule,) = move(SPEC, "10.0.0.1:9092", "b:2", script="kafka:9092").overrides
    assert rule.servers == "kafka:9092"


def test_new_version_keeps_what_is_not_given():
    assert next_version(SPEC, script=None, args=None, conf=None) == SPEC


def test_new_version_changes_script_arguments_and_settings():
    new = next_version(SPEC, script="v2.py", args=["b", 3], conf={"x": True, "y": None})
    assert (new.script, new.args, dict(new.conf)) == ("v2.py", ("b", "3"), {"x": "true"})


def test_arguments_may_be_one_line():
    assert arguments("--topic 'my orders' 5") == ("--topic", "my orders", "5")


def test_settings_may_be_json_and_nothing_else():
    assert mapping('{"a": 1}') == {"a": 1}
    with pytest.raises(BadInputError, match="JSON object"):
        mapping("[1]")


def test_unknown_rewind_is_refused():
    assert rewind("") == "continue"
    with pytest.raises(BadInputError, match="'forget'"):
        rewind("forget")


def test_empty_mirror_answers_take_the_defaults():
    found = mirror_settings({"source_alias": "old", "target_alias": "new", "connector_name": None})
    assert found.connector_name == "MirrorSourceConnector"
    assert found.positions_topic == "mm2-offsets.old.internal"


def test_mirror_without_aliases_is_refused():
    with pytest.raises(BadInputError, match="no source_alias and no target_alias"):
        mirror_settings({})


def test_misspelt_mirror_setting_is_refused():
    with pytest.raises(BadInputError, match="'polciy'"):
        mirror_settings({"source_alias": "a", "target_alias": "b", "polciy": "identity"})


def test_text_that_a_template_makes_of_a_form_says_the_same():
    named = {"source_alias": "a", "target_alias": "b"}
    found = mirror_settings(
        {**named, "sole_writer": "False", "keeps_offsets": "true", "ignored_headers": "origin"}
    )
    assert (found.sole_writer, found.keeps_offsets, found.ignored_headers) == (False, True, ("origin",))
    assert mirror_if_named({"keeps_offsets": "False"}) is None
    kept = mirror_if_named({"keeps_offsets": True, "ignored_headers": ["a", "b"]})
    assert kept is not None
    assert kept.ignored_headers == ("a", "b")


@pytest.mark.parametrize(
    "answer",
    [{"sole_writer": "no"}, {"replication_policy": "Identity"}, {"isolation": "committed"}, {"syncs_on": 1}],
)
def test_mirror_setting_with_another_value_is_refused_by_name(answer: dict[str, object]):
    with pytest.raises(BadInputError, match=next(iter(answer))):
        mirror_settings({"source_alias": "a", "target_alias": "b", **answer})


def test_isolation_that_kafka_does_not_know_is_refused():
    with pytest.raises(BadInputError, match="'READ_COMMITTED'"):
        proof_request(mirror=None, rename=None, isolation="READ_COMMITTED")


def test_keys_are_the_same_for_every_try_and_differ_by_run_and_task():
    first, retry = a_context("t"), a_context("t")
    retry["ti"].try_number = 2
    assert request_key(first) == request_key(retry)
    assert request_key(first) != request_key(a_context("u"))
    assert request_key(first) != request_key(a_context("t", run_id="other"))
    assert run_key(first) == run_key(a_context("u"))


def test_keys_can_stand_in_the_store_whatever_the_run_is_called():
    assert check_name("migration id", run_key(a_context("t" * 300, run_id="ärgerlich/ ..:" * 30)))


@pytest.mark.parametrize(
    ("root", "endpoint", "url"),
    [
        ("/data/sp", None, "file:///data/sp/job/savepoints/sp-1.json"),
        ("file:///data/sp", None, "file:///data/sp/job/savepoints/sp-1.json"),
        ("s3://b/p", "http://minio:9000/", "http://minio:9000/b/p/job/savepoints/sp-1.json"),
        ("s3://b", None, "https://s3.console.aws.amazon.com/s3/object/b?prefix=job/savepoints/sp-1.json"),
    ],
)
def test_savepoint_link_is_absolute(root: str, endpoint: str | None, url: str):
    assert manifest_url(root, endpoint, "job", "sp-1") == url
