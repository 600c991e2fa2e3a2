"""What the documents promise is proved by tests that exist, and fails with codes that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import codes

ROOT = Path(__file__).parents[3]
BY_WORDS = {
    "QUERY_UNREGISTERED": "tests/integration/test_world.py"
    "::test_query_that_was_started_in_the_jvm_is_named_and_keeps_savepoints_from_being_taken",
    "NOT_AS_APPROVED": "tests/unit/airflow_layer/test_approved.py"
    "::test_task_that_is_told_something_else_is_refused_by_name_before_the_window",
    "NOT_TESTED": "tests/unit/jobs/upgrade/test_upgrade.py"
    "::test_version_that_was_not_tested_takes_over_only_if_that_is_allowed",
    "QUERY_NOT_STARTED": "tests/unit/agent/guards/test_waiting.py"
    "::test_aligned_cut_waits_for_it_and_is_refused_then",
    "CUT_ABANDONED": "tests/integration/test_aligned.py::test_job_goes_on_uncut_when_it_is_not_cut",
}
"""Codes that no test names, and the test that meets them."""
DOCUMENTS = [ROOT / "README.md", ROOT / "tests" / "how-to-pages.md", *sorted((ROOT / "docs").glob("*.md"))]


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


def test_every_code_is_asserted_by_a_test():
    """By its code or its class; a few by what the error says."""
    known = codes.entries().keys() - BY_WORDS.keys()
    classes: dict[str, set[str]] = {}
    for kind in codes.classes():
        classes.setdefault(kind.code, set()).add(kind.__name__)
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    named = set(re.findall(r"\w+", sources))
    assert [code for code in known if not named & {code, *classes.get(code, ())}] == []
    assert missing_tests(" ".join(BY_WORDS.values())) == []


def test_every_failure_that_is_operated_has_a_way_out_and_a_test():
    operated = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8").partition("\n## Done again\n")[0]
    entries = re.findall(r"^- \*\*(.+?)\*\*(.+)$", operated, re.MULTILINE)
    assert len(entries) >= 15
    assert [fails for fails, happens in entries if len(happens.split()) < 4] == []
    shown = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8").partition("\n## Done again\n")[0]
    proofs = re.findall(r"^- (.+?): (`tests/.+)$", shown, re.MULTILINE)
    assert [fails for fails, _ in proofs] == [fails for fails, _ in entries]
    assert [fails for fails, proof in proofs if "::test_" not in proof] == []
