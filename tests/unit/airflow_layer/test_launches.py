from __future__ import annotations

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.keys import request_key, run_key
from airflow_flinkstyle.hooks.launches import arguments, mapping, next_version, rewind
from airflow_flinkstyle.hooks.urls import NoUrl, manifest_url
from airflow_flinkstyle.jobs.spec import JobSpec
from airflow_flinkstyle.protocol.board import check_name
from tests.unit.airflow_layer.conftest import a_context

pytestmark = pytest.mark.airflow

SPEC = JobSpec(name="job", script="v1.py", args=("a",), conf={"x": "1", "y": "2"}, checkpoint_root="/cp")


@pytest.mark.parametrize("answer", [None, "", " ", "None", [], ()])
def test_new_version_keeps_what_is_not_given_in_whatever_way_that_is_rendered(answer: list[str] | str | None):
    script = answer if isinstance(answer, str) else None
    assert next_version(SPEC, script=script, args=answer, conf=None) == SPEC
    assert arguments(answer) == ()


@pytest.mark.parametrize(("answer", "args"), [("-", ()), (["-"], ()), (["-", "x"], ("-", "x"))])
def test_new_version_may_have_no_arguments(answer: list[str] | str, args: tuple[str, ...]):
    assert next_version(SPEC, script=None, args=answer, conf=None).args == args


def test_new_version_changes_script_arguments_and_settings():
    new = next_version(SPEC, script="v2.py", args=["b", 3], conf={"x": True, "y": None})
    assert (new.script, new.args, dict(new.conf)) == ("v2.py", ("b", "3"), {"x": "true"})


def test_arguments_may_be_one_line():
    assert arguments("--topic 'my orders' 5") == ("--topic", "my orders", "5")
    with pytest.raises(BadInputError, match="No closing quotation"):
        arguments("--topic 'my orders")


def test_settings_may_be_json_and_nothing_else():
    assert mapping('{"a": 1}') == {"a": 1}
    for found in ("[1]", "{a: 1}", "spark.x=1"):
        with pytest.raises(BadInputError, match="JSON object"):
            mapping(found)


def test_unknown_rewind_is_refused():
    assert rewind("") == "continue"
    with pytest.raises(BadInputError, match="'forget'"):
        rewind("forget")


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
        ("s3://b/p", None, "https://s3.console.aws.amazon.com/s3/object/b?prefix=p/job/savepoints/sp-1.json"),
        ("s3://b", None, "https://s3.console.aws.amazon.com/s3/object/b?prefix=job/savepoints/sp-1.json"),
    ],
)
def test_savepoint_link_is_absolute(root: str, endpoint: str | None, url: str):
    assert manifest_url(root, endpoint, "job", "sp-1") == url


@pytest.mark.parametrize(
    ("root", "endpoint", "reason"),
    [
        ("/data/sp", None, "a browser opens no file"),
        ("file:///data/sp", None, "a browser opens no file"),
        ("s3://b/p", "http://minio:9000/", "http://minio:9000/ answers signed requests only"),
    ],
)
def test_savepoint_that_no_browser_could_open_has_no_link_and_a_reason(
    root: str, endpoint: str | None, reason: str
):
    found = manifest_url(root, endpoint, "job", "sp-1")
    assert isinstance(found, NoUrl)
    assert found.reason.startswith(reason)
