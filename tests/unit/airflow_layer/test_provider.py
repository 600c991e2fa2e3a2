from __future__ import annotations

import json
import tomllib
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

import airflow_flinkstyle
from airflow_flinkstyle.jobs.deployments.base import DriverPages
from airflow_flinkstyle.links.driver import ClusterLink, DriverLogLink, SparkUiLink, show_driver
from airflow_flinkstyle.links.savepoint import SavepointLink
from airflow_flinkstyle.provider_info import get_provider_info
from testbed.paths import ROOT
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.airflow


def test_both_entry_points_lead_to_the_package():
    (info,) = [
        p for p in entry_points(group="apache_airflow_provider") if p.value.startswith("airflow_flinkstyle")
    ]
    (plugin,) = [p for p in entry_points(group="airflow.plugins") if p.name == "flinkstyle"]
    assert info.load()() == get_provider_info()
    assert [type(link) for link in plugin.load().operator_extra_links] == [
        SavepointLink,
        SparkUiLink,
        DriverLogLink,
        ClusterLink,
    ]


def hooks_in_tasks() -> Mapping[str, Any]:
    """The hooks by type of connection as a task finds them."""
    try:
        from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime
    except ImportError:  # Airflow 3.1 has one manager for all
        from airflow.providers_manager import ProvidersManager

        return ProvidersManager().hooks
    return ProvidersManagerTaskRuntime().hooks


def test_metadata_is_as_airflows_schema_wants_it():
    schema = json.loads(files("airflow").joinpath("provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


@pytest.mark.parametrize("room", ["operators", "sensors", "triggers"])
def test_metadata_lists_every_module_that_people_use(room: str):
    ((listed,),) = [[entry["python-modules"] for entry in get_provider_info()[room]]]
    shared = {"operators": {"asking", "base"}, "sensors": {"base"}, "triggers": {"base"}}[room]
    folder = Path(airflow_flinkstyle.__file__).parent / room
    there = {path.stem for path in folder.glob("*.py")} - {"__init__", *shared}
    assert set(listed) == {f"airflow_flinkstyle.{room}.{name}" for name in there}
    for module in listed:
        import_module(module)


def test_metadata_names_pages_of_this_repository_and_its_documentation():
    (integration,) = get_provider_info()["integrations"]
    assert [page for page in integration["how-to-guide"] if not (ROOT / page.lstrip("/")).is_file()] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert integration["external-doc-url"] == project["urls"]["Documentation"]
    assert (ROOT / integration["external-doc-url"].partition("/blob/main/")[2]).is_file()


def test_airflow_accepts_the_provider_and_its_hook():
    hook = hooks_in_tasks()["flinkstyle"]
    assert hook is not None
    assert hook.hook_class_name == "airflow_flinkstyle.hooks.job.StreamingJobHook"


def test_connection_form_has_a_field_for_each_setting_from_airflow_3_2_on():
    from airflow import __version__
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()
    manager.initialize_providers_hooks()
    fields = {
        widget.field_name
        for name, widget in manager.connection_form_widgets.items()
        if name.startswith("extra__flinkstyle__")
    }
    if __version__.startswith("3.1."):  # it knows no fields of providers: the extra is written as JSON
        assert fields == set()
        return
    assert fields == set(get_provider_info()["connection-types"][0]["conn-fields"])
    behaviour = manager.field_behaviours["flinkstyle"]
    assert "password" not in behaviour["hidden_fields"]
    assert behaviour["relabeling"] == {"password": "Signing key"}


def test_link_shows_while_the_task_runs():
    context = a_context()
    SavepointLink.show(context, "http://store/sp-1.json")
    assert context["ti"].xcoms == {SavepointLink().xcom_key: "http://store/sp-1.json"}


def test_address_that_a_click_would_run_is_no_link_to_the_driver():
    context = a_context()
    show_driver(context, DriverPages(spark_ui="javascript:alert(1)", log="file:///etc/passwd", cluster="//x"))
    assert context["ti"].xcoms == {}


def test_links_to_the_driver_show_what_its_cluster_has():
    context = a_context()
    show_driver(context, DriverPages(cluster="http://rm/app", spark_ui="http://rm/proxy"))
    assert context["ti"].xcoms == {
        "_link_ClusterLink": "http://rm/app",
        "_link_SparkUiLink": "http://rm/proxy",
    }
