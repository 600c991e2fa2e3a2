"""Let a whole job meet every error of every system in every phase: ``make every-error``.

A run's number decides at which call the error comes, for how long (one call, 5 s, 40 s, 5 minutes), and
whether the call takes effect all the same. An error that is not on the list of what lasts needs no person
(``final-unlisted``); one on it is named (``unnamed``), and corrected by a person.

Prints of each job that broke a promise what happened, and a table of what became of all. Ends with 1 if one
did.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from testbed.histories.troubles import ANSWERS
from testbed.histories.whole_job import OUTCOMES, PHASES, Lived, all_lived, every_case

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.histories.oracle import Wrong

_CHUNK = 40
_TELL_S = 20.0


@dataclass(slots=True)
class Told:
    """What became of some jobs."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """System and outcome -> jobs."""
    phases: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Phase and outcome -> jobs."""
    wrong: dict[int, Lived] = field(default_factory=dict)

    def plus(self, number: int, lived: Lived) -> None:
        """Add one."""
        self.outcomes[lived.trouble.system, lived.outcome] += 1
        self.phases[lived.phase, lived.outcome] += 1
        if lived.wrong is not None:
            self.wrong[number] = lived


def _some(numbers: Sequence[int]) -> list[tuple[int, Lived]]:
    return list(zip(numbers, all_lived(numbers), strict=True))


def main(arguments: list[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m testbed.histories.every_error", description=__doc__)
    cases = len(every_case())
    parser.add_argument("--jobs", type=int, default=cases, help="how many; default: one for each case")
    parser.add_argument("--seed", type=int, default=0, help="the first case; each next one is one more")
    parser.add_argument("--every", type=int, default=1, help="take each so many-th case only")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(arguments)
    first, last = asked.seed, asked.seed + asked.jobs
    numbers = range(first, last, asked.every)
    chunks = [numbers[low : low + _CHUNK] for low in range(0, len(numbers), _CHUNK)]
    told = Told()
    began_s = told_s = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for done, some in enumerate(pool.imap(_some, chunks), start=1):
            for number, lived in some:
                told.plus(number, lived)
                if lived.wrong is not None:
                    _say(as_text(number, lived, lived.wrong))
            if time.monotonic() - told_s > _TELL_S:
                told_s = time.monotonic()
                _say(f"{done * _CHUNK:,} jobs, {len(told.wrong)} wrong")
    _say(
        f"{len(numbers):,} jobs, seeds {first} to {last - 1}, of {cases:,} cases: {len(told.wrong)} wrong; "
        f"{time.monotonic() - began_s:,.0f} s"
    )
    _say(table(told))
    return 1 if told.wrong else 0


def as_text(number: int, lived: Lived, wrong: Wrong) -> str:
    """Return what happened to a job that broke a promise."""
    lines = (f"{number}: {lived.trouble} in {lived.phase}: {wrong.kind}: {wrong.what}", *lived.told)
    return "\n    ".join(lines)


def table(told: Told) -> str:
    """Return what became of the jobs, by system and by phase, in Markdown."""
    answers = Counter(system for system, _ in ANSWERS)
    lines = [f"| answer of | answers | {' | '.join(OUTCOMES)} |", f"|---|---|{'---|' * len(OUTCOMES)}"]
    for system, count in answers.items():
        numbers = [f"{told.outcomes[system, outcome]:,}" for outcome in OUTCOMES]
        lines.append(f"| {system} | {count} | {' | '.join(numbers)} |")
    lines += ["", f"| phase | {' | '.join(OUTCOMES)} |", f"|---|{'---|' * len(OUTCOMES)}"]
    for phase in PHASES:
        numbers = [f"{told.phases[phase, outcome]:,}" for outcome in OUTCOMES]
        lines.append(f"| {phase} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
