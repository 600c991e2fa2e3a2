"""What may be installed: not older than what docs/compatibility.md shows, and what the lock files hold."""

from __future__ import annotations

import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from trove_classifiers import classifiers

from tools.common import LOCKS, ROOT, SPARKS
from tools.version_pages import AIRFLOWS, locked

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
SHOWN = {
    "pyspark": {locked(LOCKS / f"spark-{minor}.txt", "pyspark") for minor in SPARKS}
    | {locked(LOCKS / "spark.txt", "pyspark")},
    "apache-airflow": {locked(LOCKS / f"airflow-{minor}.txt", "apache-airflow") for minor in AIRFLOWS}
    | {locked(LOCKS / "airflow.txt", "apache-airflow")},
}
LOCKED = {
    "airflow": ("airflow", "cli", "openlineage", "test"),
    **{f"airflow-{minor}": ("airflow", "cli", "openlineage", "test") for minor in AIRFLOWS},
    **{f"spark-{minor}": ("spark", "test") for minor in SPARKS},
    "spark": ("spark", "test"),
}
"""Lock file -> the extras it was resolved from."""


@pytest.mark.parametrize("package", SHOWN)
def test_lower_bound_is_the_oldest_that_was_shown_and_there_is_no_upper_one(package: str):
    asked = [Requirement(text) for name in ("airflow", "spark") for text in EXTRAS[name]]
    (bounds,) = [one.specifier for one in asked if one.name == package]
    assert str(bounds) == f">={min(Version(text) for text in SHOWN[package])}"


@pytest.mark.parametrize("lock", LOCKED)
def test_lock_holds_what_the_project_asks_for(lock: str):
    asked = [*PROJECT["dependencies"], *(text for extra in LOCKED[lock] for text in EXTRAS[extra])]
    for requirement in map(Requirement, asked):
        found = locked(LOCKS / f"{lock}.txt", requirement.name)
        assert Version(found) in requirement.specifier, f"{requirement}, {found} in {lock}: run make lock"


def test_each_classifier_is_one_that_indexes_know_and_its_pythons_were_shown():
    assert set(PROJECT["classifiers"]) <= classifiers
    page = (ROOT / "docs" / "compatibility.md").read_text()
    shown = page[page.index("<!-- python:") : page.index("<!-- python: end -->")]
    minors = {text.rpartition(" :: ")[2] for text in PROJECT["classifiers"] if "Python :: 3." in text}
    everything = "3.11"  # what set-up uses, and all other tests run on
    assert {minor for minor in minors - {everything} if f" {minor}." not in shown} == set()
