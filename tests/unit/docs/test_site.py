"""The documentation site is whole: building it is `make docs`, which this does not do."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

import pytest

from testbed import paths
from tools import inventory, site

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


def an_inventory(*lines: str) -> bytes:
    head = "# Sphinx inventory version 2\n# Project: x\n# Version: 0.0.0\n"
    head += "# The remainder of this file is compressed using zlib.\n"
    return head.encode() + zlib.compress("".join(f"{line}\n" for line in lines).encode())


def test_inventory_gets_pages_and_the_names_that_people_import():
    written = an_inventory("pkg.ops.stop.Stop py:class 1 reference/ops.html#$ -")
    found = inventory.complete(
        written,
        project="pkg",
        version="0.1.0",
        pages={"docs/start": "Start a job"},
        exported={"pkg.ops.Stop": "pkg.ops.stop.Stop"},
    )
    assert found.splitlines()[1:3] == [b"# Project: pkg", b"# Version: 0.1.0"]
    assert inventory.read(found) == {
        "pkg.ops.stop.Stop": "pkg.ops.stop.Stop py:class 1 reference/ops.html#$ -",
        "pkg.ops.Stop": "pkg.ops.Stop py:class 1 reference/ops.html#pkg.ops.stop.Stop -",
        "docs/start": "docs/start std:doc -1 docs/start.html Start a job",
    }


def test_export_that_the_reference_lacks_is_an_error():
    with pytest.raises(KeyError, match="Gone"):
        inventory.complete(
            an_inventory(), project="x", version="1", pages={}, exported={"pkg.Gone": "pkg.m.Gone"}
        )


@pytest.mark.nightly
def test_site_is_built_without_a_warning_and_its_inventory_has_every_public_class_and_page():
    assert site.main() == 0
    found = inventory.read((site.SITE / "objects.inv").read_bytes())
    assert found["airflow_flinkstyle.operators.StartStreamingJobOperator"].split()[1] == "py:class"
    assert "airflow_flinkstyle.sinks.TransactionalKafkaSink" in found
    assert "airflow_flinkstyle.hooks.job.StreamingJobHook" in found
    assert found["docs/stability"].endswith("docs/stability.html What stays as it is")
    places = {line.split(" ")[3].partition("#")[0] for line in found.values()}
    assert [place for place in places if not (site.SITE / place).is_file()] == []


def test_every_room_of_the_reference_is_said_to_be_public():
    text = (paths.ROOT / "docs" / "stability.md").read_text()
    assert [room for room in site.REFERENCE if f"`airflow_flinkstyle.{room}" not in text] == []
