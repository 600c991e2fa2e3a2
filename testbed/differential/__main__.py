"""``python -m testbed.differential``: run scripts plainly and under the agent, and compare.

The seeds are SEED, SEED + 1, ...: ``--seed 17 --count 1`` tries one again. A case in JSON, as the results
hold it, is tried with ``--case``.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import paths
from testbed.differential.archive import make_archive
from testbed.differential.case import Case
from testbed.differential.report import line, render
from testbed.differential.run import Result, Task, run_all
from testbed.differential.script import render as render_script

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_SHRUNK = 4


def main() -> int:
    """Try the cases; returns 1 if one failed."""
    parser = argparse.ArgumentParser(prog="differential", description=__doc__)
    parser.add_argument("--count", type=int, default=50, help="how many seeds")
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--lanes", type=int, default=2, help="how many run side by side")
    parser.add_argument("--case", type=Path, help="a case in JSON instead of seeds")
    parser.add_argument("--no-shrink", action="store_true", help="leave failures as they are")
    arguments = parser.parse_args()
    make_archive()
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    tasks = [Task(label=f"seed-{seed}", case=Case.of(seed)) for seed in seeds]
    if arguments.case is not None:
        tasks = [Task(label="case", case=Case.from_json(arguments.case.read_text()))]
    base = paths.HOME / "differential"
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=base))
    print(f"Seeds {seeds.start} to {seeds.stop - 1}; results in {folder}", flush=True)
    results = _run(tasks, folder, lanes=min(arguments.lanes, len(tasks)))
    failures = [result for result in results if result.verdict.kind == "failed"]
    (folder / "table.md").write_text(render(results))
    print(render(results))
    if failures and not arguments.no_shrink:
        _shrink(failures, folder)
    print(f"{len(results) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


def _run(tasks: Sequence[Task], folder: Path, *, lanes: int) -> list[Result]:
    results = []
    with (folder / "results.jsonl").open("w") as file:
        for result in run_all(tasks, folder, lanes=lanes):
            results.append(result)
            file.write(result.to_json() + "\n")
            file.flush()
            print(line(result), flush=True)
    return results


def _shrink(failures: Sequence[Result], folder: Path) -> None:
    """Make one failure of each kind small."""
    kinds = {_kind(result): result for result in reversed(failures)}
    chosen = list(kinds.values())[-_MOST_SHRUNK:]
    tasks = [
        Task(label=f"{result.task.label}-shrunk", case=result.task.case, shrink=True) for result in chosen
    ]
    for result in run_all(tasks, folder / "shrunk", lanes=min(2, len(tasks))):
        place = folder / f"{result.task.label}.json"
        place.write_text(result.case.to_json())
        place.with_suffix(".py").write_text(render_script(result.case.spec))
        print(f"{result.task.label}: {result.verdict.kind}; the smallest case found is {place}:")
        print(result.case.to_json(), flush=True)


def _kind(result: Result) -> str:
    """Return what failures of one cause have in common, as far as their text tells."""
    first = result.verdict.problems[0] if result.verdict.problems else ""
    return re.sub(r"[0-9]+", "#", first)[:50]


if __name__ == "__main__":
    sys.exit(main())
