"""Each test that docs/guarantees.md names is run by `make test` or by `make nightly`, and is there."""

from __future__ import annotations

import pytest

from tools.promises import commands_of, promised
from tools.run_tests import TESTS


@pytest.mark.nightly
def test_every_promise_is_collected_by_one_of_the_two_commands():
    found = commands_of({name.partition("::")[0] for name in promised()})
    assert [name for name in promised() if not found.get(name)] == []


def test_a_test_that_neither_command_runs_is_found():
    """Those of other versions have commands of their own."""
    assert commands_of({"tests/e2e/test_lost_leaders.py"}) == {}
    assert (TESTS / "e2e" / "test_lost_leaders.py").is_file()
