"""Versions that may be installed are those that docs/compatibility.md shows."""

from __future__ import annotations

import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tools.common import LOCKS, ROOT, SPARKS
from tools.version_pages import AIRFLOWS, locked

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
SHOWN = {
    "pyspark": {locked(LOCKS / f"spark-{minor}.txt", "pyspark") for minor in SPARKS}
    | {locked(LOCKS / "spark.txt", "pyspark")},
    "apache-airflow": {locked(LOCKS / f"airflow-{minor}.txt", "apache-airflow") for minor in AIRFLOWS}
    | {locked(LOCKS / "airflow.txt", "apache-airflow")},
}


@pytest.mark.parametrize("package", SHOWN)
def test_bounds_hold_the_versions_that_were_shown_and_no_minor_version_beside_them(package: str):
    asked = [Requirement(text) for name in ("airflow", "spark") for text in EXTRAS[name]]
    (bounds,) = [one.specifier for one in asked if one.name == package]
    shown = sorted(Version(text) for text in SHOWN[package])
    assert all(version in bounds for version in shown)
    first, last = shown[0], shown[-1]
    assert f">={first}" in str(bounds)
    assert Version(f"{last.major}.{last.minor + 1}.0") not in bounds
