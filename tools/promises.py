"""Which command runs the tests that docs/guarantees.md names: `python -m tools.promises` prints the table."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tools.common import HOME, ROOT, say
from tools.run_tests import TOGETHER, selection

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tools.run_tests import Command, Invocation

PAGE = ROOT / "docs" / "guarantees.md"
PASSED: tuple[Command, ...] = ("test", "nightly")
"""Each change passes these; a promise that `make matrix` alone kept would be kept by nothing."""
_NAMED = re.compile(r"`(tests/[\w./-]+\.py::\w+)`")
_COLLECTED = re.compile(r"^(tests/[\w./-]+\.py::\w+)", re.MULTILINE)


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
    asked = [
        (command, one)
        for command in PASSED
        for tiers in TOGETHER[command]
        for one in selection(tiers, command)
        if wanted.intersection(one.files)
    ]
    found: dict[str, set[str]] = {}
    with ThreadPoolExecutor(2) as pool:
        answers = pool.map(lambda each: _collect(each[1], wanted), asked)
        for (command, _), names in zip(asked, answers, strict=True):
            for name in names:
                found.setdefault(name, set()).add(f"make {command}")
    return found


def _collect(what: Invocation, wanted: set[Path]) -> set[str]:
    """Let pytest tell what it would run; nothing is, and what cannot be imported is an error."""
    files = [str(file.relative_to(ROOT)) for file in what.files if file in wanted]
    command = [str(what.venv / "bin" / "python"), "-m", "pytest", "--collect-only", "-q", "-m", what.markers]
    cache = f"cache_dir={HOME / 'cache' / 'pytest-promises'}"
    done = subprocess.run(  # noqa: S603
        [*command, "-o", cache, "-p", "no:xdist", *files], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode not in (0, 5):
        raise RuntimeError(f"{what.name} collects nothing: {done.stdout}{done.stderr}")
    return set(_COLLECTED.findall(done.stdout))


if __name__ == "__main__":
    sys.exit(main())
