"""What an earlier version has stored means today what it meant then."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import airflow_flinkstyle
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.typed_json import encode
from tests.formats.__main__ import FOLDER, NEWEST
from tests.formats.documents import documents
from tests.formats.examples import every_record
from tests.unit.savepoint.manifests import a_manifest

DOCUMENTS = documents()
GOLDEN = sorted(FOLDER.glob("*.*/*"))
VERSIONED = re.compile(
    r"^\s*(_?FORMAT(?:_VERSION)?|PROTOCOL_VERSION|format_version: ClassVar\[int\]) = (\d+)", re.M
)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_stored_is_read_as_it_stands(path: Path):
    """A field that was renamed since is compared here by the test of its reader."""
    found = DOCUMENTS[path.name].read(path.read_bytes())
    if path.parent == NEWEST:
        assert found == DOCUMENTS[path.name].meaning
    if isinstance(found, Record):
        fields = {name: value for name, value in json.loads(path.read_bytes()).items() if name != "version"}
        assert fields.items() <= json.loads(json.dumps(encode(found))).items()


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_every_format_has_a_golden_file_that_is_written_so_today(name: str):
    """Make them anew with ``python -m tests.formats``; from 0.1.0 on only for a format that is new."""
    assert (NEWEST / name).is_file(), f"{name} has no golden file: run python -m tests.formats"
    if DOCUMENTS[name].is_exact:
        assert DOCUMENTS[name].write() == (NEWEST / name).read_bytes()


def test_no_golden_file_is_of_a_format_that_nobody_reads():
    assert {path.name for path in GOLDEN} == set(DOCUMENTS)


def test_manifest_of_format_1_says_what_it_said_and_has_no_packs():
    found = DOCUMENTS["manifest.json"].read((FOLDER / "0.1" / "manifest.json").read_bytes())
    (query,) = a_manifest().queries
    unpacked = tuple(entry for entry in query.files if entry.offset is None)
    assert found == a_manifest(queries=(replace(query, files=unpacked),))


def test_every_kind_of_record_is_among_them():
    names = {f"{kind.__name__.lstrip('_')}.json" for kind in every_record()}
    assert len(names) == len(every_record()) > 20
    assert names <= set(DOCUMENTS)


def test_every_format_but_the_manifests_is_version_1_and_no_module_has_one_that_is_not_known_here():
    root = Path(airflow_flinkstyle.__file__).parent
    found = {
        str(path.relative_to(root)): {int(number) for _, number in VERSIONED.findall(path.read_text())}
        for path in root.rglob("*.py")
    }
    assert {name: numbers for name, numbers in found.items() if numbers} == {
        "jobs/migration/approved.py": {1},
        "protocol/record.py": {1},
        "rewrite/plan.py": {1},
        "savepoint/manifest.py": {2},
        "savepoint/repository/folder_cache.py": {1},
    }
