"""What the documents promise is proved by tests that exist, and fails with codes that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FAMILIES = {"FLINKSTYLE", "JOB", "SAVEPOINT", "STORE", "CHECKPOINT", "REWRITE"}
"""Codes of errors that nobody raises: others are made from them."""
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def missing_tests(text: str) -> list[str]:
    """Return the references to tests that nobody wrote."""
    return [
        f"{path}::{name}"
        for path, name in re.findall(r"\b(tests/[\w./-]+\.py)::(\w+)", text)
        if not (ROOT / path).is_file() or f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_that_a_document_names_exists(document: Path):
    assert missing_tests(document.read_text(encoding="utf-8")) == []


def test_a_test_that_nobody_wrote_is_found():
    here = "tests/unit/docs/test_references.py"
    text = f"`{here}::test_a_test_that_nobody_wrote_is_found`, `{here}::test_nothing`, `tests/no.py::test_x`"
    assert missing_tests(text) == [f"{here}::test_nothing", "tests/no.py::test_x"]


def rows(document: Path, *, until: str | None = None) -> list[list[str]]:
    """Return the cells of all tables, or of those before a heading, without heads and rulers."""
    text = document.read_text(encoding="utf-8")
    text = text if until is None else text[: text.index(f"\n{until}\n")]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "situation"]


def codes_of_the_package() -> set[str]:
    package = ROOT / "airflow_flinkstyle"
    sources = "\n".join(path.read_text(encoding="utf-8") for path in package.rglob("errors.py"))
    return set(re.findall(r'\bcode(?:: ClassVar\[str\])? = "(\w+)"', sources))


def test_every_bad_input_has_a_code_of_the_package_and_a_test():
    codes = codes_of_the_package()
    table = rows(ROOT / "docs" / "bad-input.md")
    assert len(table) >= 15
    for situation, code, left, remedy, proof in table:
        named = set(re.findall(r"`([A-Z_]+)`", code))
        assert named, f"{situation}: no code"
        assert named <= codes, f"{situation}: {named - codes}"
        assert left, f"{situation}: nothing on what is left"
        assert remedy, f"{situation}: nothing on what to do"
        assert "::test_" in proof, f"{situation}: no test"


def test_every_code_that_is_raised_is_among_the_bad_input():
    cells = [row[1] for row in rows(ROOT / "docs" / "bad-input.md")]
    told = set(re.findall(r"`([A-Z_]+)`", " ".join(cells)))
    assert codes_of_the_package() - told - FAMILIES == set()


def test_every_failure_that_is_operated_has_a_way_out_and_a_test():
    operated = rows(ROOT / "docs" / "operating.md", until="## Done again")
    table = [row for row in operated if row[0] != "what fails"]
    assert len(table) >= 15
    for fails, happens, acts, person in table:
        assert happens, f"{fails}: nothing on what happens"
        assert acts, f"{fails}: nobody acts"
        assert person, f"{fails}: nothing on what a person does"
    proofs = [row for row in rows(ROOT / "docs" / "proofs.md") if row[0] != "what fails"]
    assert [fails.replace("](operating.md#", "](#") for fails, _ in proofs] == [row[0] for row in table]
    assert [fails for fails, proof in proofs if "::test_" not in proof] == []
