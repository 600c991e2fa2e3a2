from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import airflow_flinkstyle.plugin
from airflow_flinkstyle.hooks.page_roots import DEFAULT
from airflow_flinkstyle.plugin import PREFIX, FlinkstylePlugin
from airflow_flinkstyle.provider_info import get_provider_info

pytestmark = pytest.mark.airflow


def test_every_component_of_airflow_imports_the_plugin_and_none_of_its_api():
    program = (
        "import sys, airflow_flinkstyle.plugin as plugin\n"
        "apps = plugin.FlinkstylePlugin.fastapi_apps\n"
        "print([name for name in sys.modules if name.startswith('airflow_flinkstyle.plugin.')], apps)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "airflow_flinkstyle.plugin.lazy_app" in said
    assert "airflow_flinkstyle.plugin.api'" not in said
    assert "jobs" not in said


def test_navigation_leads_to_a_file_that_is_served():
    (app,), (page,) = FlinkstylePlugin.fastapi_apps, FlinkstylePlugin.react_apps
    assert app["url_prefix"] == PREFIX
    path = page["bundle_url"].removeprefix(f"{PREFIX[1:]}/")
    assert (Path(airflow_flinkstyle.plugin.__file__).parent / path).is_file()


def test_every_module_of_the_page_that_is_imported_is_there():
    static = Path(airflow_flinkstyle.plugin.__file__).parent / "static"
    for file in static.glob("*.js"):
        for line in file.read_text().splitlines():
            if line.startswith("import "):
                assert (static / line.split('"')[1]).is_file(), f"{file.name}: {line}"


def test_page_never_sets_markup():
    static = Path(airflow_flinkstyle.plugin.__file__).parent / "static"
    text = "".join(file.read_text() for file in static.glob("*.js"))
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "dangerouslySet"):
        assert way not in text


def test_setting_is_known_to_airflow_with_its_default():
    option = get_provider_info()["config"]["flinkstyle"]["options"]["page"]
    assert option["default"] == DEFAULT
