"""What tests share stands in modules of its own: a test module can be moved or split without others."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[2]


def test_no_test_module_imports_from_another():
    wanted = re.compile(r"^\s*(?:from|import) tests\.\S*\btest_\w+", re.MULTILINE)
    found = {
        str(path.relative_to(TESTS)): taken
        for path in TESTS.rglob("*.py")
        if (taken := wanted.findall(path.read_text()))
    }
    assert found == {}
