"""Which command runs the tests that docs/guarantees.md names: `python -m tools.promises` prints the table."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING

from tools.common import HOME, ROOT, say
from tools.run_tests import NO_TESTS, TOGETHER, selection

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tools.run_tests import Command, Invocation

PAGE = ROOT / "docs" / "guarantees.md"
PASSED: tuple[Command, ...] = ("test", "nightly")
"""Each change passes these; a promise that `make matrix` alone kept would be kept by nothing."""
_NAMED = re.compile(r"`(tests/[\w./-]+\.py::\w+)`")
_COLLECTED = re.compile(r"^(tests/[\w./-]+\.py::\w+)", re.MULTILINE)
_COLLECTING = """
import json, sys, pytest
for arguments in json.load(sys.stdin):
    print(f"exit code {int(pytest.main(arguments))}", flush=True)
"""
"""One process for each environment: to import what the tests import takes longer than to collect them."""
_ENDS = re.compile(r"^exit code (\d+)$", re.MULTILINE)


def main() -> int:
    """Print for each promise which commands run its tests."""
    found = commands_of({name.partition("::")[0] for name in promised()})
    say("| the test | run by |\n|---|---|")
    for name in promised():
        say(f"| `{name}` | {', '.join(sorted(found.get(name, ()))) or 'NOTHING'} |")
    return 0


def promised() -> list[str]:
    """Return the tests that the page names, each once, in its order."""
    return list(dict.fromkeys(_NAMED.findall(PAGE.read_text(encoding="utf-8"))))


def commands_of(files: Iterable[str]) -> dict[str, set[str]]:
    """Return test (``file::name``) -> the commands that run it or a case of it, as pytest collects them.

    Args:
        files: Paths below the checkout; nothing else is collected.
    """
    wanted = {ROOT / file for file in files}
    runs = [
        (command, one)
        for command in PASSED
        for tiers in TOGETHER[command]
        for one in selection(tiers, command)
        if wanted.intersection(one.files)
    ]
    by_venv = [[run for run in runs if run[1].venv == venv] for venv in {one.venv for _, one in runs}]
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda asked: _collect([one for _, one in asked], wanted), by_venv))
    found: dict[str, set[str]] = {}
    for (command, _), names in zip(chain(*by_venv), chain(*answers), strict=True):
        for name in names:
            found.setdefault(name, set()).add(f"make {command}")
    return found


def _collect(asked: list[Invocation], wanted: set[Path]) -> list[set[str]]:
    """Let pytest tell what it would run of each; nothing is, and what cannot be imported is an error."""
    cache = f"cache_dir={HOME / 'cache' / 'pytest-promises'}"
    options = ["--collect-only", "-q", "-o", cache, "-p", "no:xdist"]
    arguments = [
        [*options, "-m", one.markers, *(str(file.relative_to(ROOT)) for file in one.files if file in wanted)]
        for one in asked
    ]
    command = [str(asked[0].venv / "bin" / "python"), "-c", _COLLECTING]
    done = subprocess.run(  # noqa: S603
        command, cwd=ROOT, input=json.dumps(arguments), capture_output=True, text=True
    )
    *parts, _ = _ENDS.split(done.stdout)
    collected, codes = parts[::2], parts[1::2]
    if len(codes) != len(asked) or any(int(code) not in (0, NO_TESTS) for code in codes):
        raise RuntimeError(f"{asked[0].venv.name} collects nothing: {done.stdout}{done.stderr}")
    return [set(_COLLECTED.findall(names)) for names in collected]


if __name__ == "__main__":
    sys.exit(main())
