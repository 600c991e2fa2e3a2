"""The documentation site is whole: building it is `make docs`, which this does not do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from testbed import paths
from tools import site

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    site.gather(tmp_path / "pages")
    return tmp_path / "pages"


def test_every_page_has_its_place_and_every_place_its_page(pages: Path):
    placed = set(re.findall(r"^ +- .+: (\S+\.md)$", (paths.ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    assert placed == {path.relative_to(pages).as_posix() for path in pages.rglob("*.md")}


def test_reference_names_every_module_of_a_room(pages: Path):
    page = (pages / "reference/sensors.md").read_text()
    assert page.startswith("# Sensors")
    assert "::: airflow_flinkstyle.sensors.freshness" in page


def test_module_that_is_gone_is_named():
    with pytest.raises(FileNotFoundError, match=r"sensors.nothing\.py"):
        site.reference("sensors", ("nothing",))
