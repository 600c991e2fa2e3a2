"""Each pitfall of docs/pitfalls.md leads to a file that names what copes with it."""

from __future__ import annotations

import re

from testbed.paths import ROOT

TEXT = (ROOT / "docs" / "pitfalls.md").read_text(encoding="utf-8")
LINKS = [
    (name, ROOT / "docs" / path)
    for names, path in re.findall(r"\[((?:`[^`]+`(?:, )?)+)\]\(([^)]+\.py)\)", TEXT)
    for name in re.findall(r"`([^`]+)`", names)
]


def test_every_pitfall_names_its_place_in_the_code():
    assert [line for line in TEXT.splitlines() if line.startswith("- ") and "](../" not in line] == []
    assert len(LINKS) > 40


def test_every_place_has_what_the_page_names():
    assert [
        f"{path.name}: {name}" for name, path in LINKS if not path.is_file() or name not in path.read_text()
    ] == []
