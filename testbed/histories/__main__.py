"""Let random histories happen, one of each seed, and judge each: ``make histories N=100000``.

Prints how many there were a second, and of every broken promise the shortest history found, as a program
that repeats it. Ends with 1 if there is any.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import sys
import time

from testbed.histories.generator import a_history, as_script
from testbed.histories.history import run_history
from testbed.histories.oracle import KINDS
from testbed.histories.shrink import shrunk
from testbed.histories.tally import Tally, judged

_CHUNK = 100
_TELL_S = 20.0


def main(arguments: list[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m testbed.histories", description=__doc__)
    parser.add_argument("--histories", type=int, default=10_000, help="how many; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the first; each next one is one more")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shrink", type=int, default=3, help="how many of each promise to make short")
    parser.add_argument("--table", action="store_true", help="show what was asked, and what came of it")
    asked = parser.parse_args(arguments)
    first, last = asked.seed, asked.seed + asked.histories
    chunks = [range(low, min(low + _CHUNK, last)) for low in range(first, last, _CHUNK)]
    began_s = told_s = time.monotonic()
    tally = Tally()
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for part in pool.imap_unordered(judged, chunks):
            tally.plus(part)
            if time.monotonic() - told_s > _TELL_S:
                told_s = time.monotonic()
                _say(f"{tally.histories:,} histories, {len(tally.wrong)} wrong")
    _say(
        f"{tally.histories:,} histories, seeds {first} to {last - 1}, {tally.steps:,} steps: "
        f"{len(tally.wrong)} wrong; {time.monotonic() - began_s:,.0f} s, "
        f"{tally.histories / tally.cpu_s:,.0f} a second and core"
    )
    if asked.table:
        _say("\n".join(f"{count:8,} {what}" for what, count in tally.done.most_common()))
    _tell_wrong(tally, asked.shrink)
    return 1 if tally.wrong else 0


def _tell_wrong(tally: Tally, most: int) -> None:
    """Print the shortest histories, by promise and by the words that tell how it was broken."""
    by_kind: dict[str, list[int]] = {}
    for seed in sorted(tally.wrong):
        kind, what = tally.wrong[seed]
        codes = "+".join(sorted(set(re.findall(r"\b[A-Z][A-Z]+_[A-Z_]+\b", what)))[:3])
        by_kind.setdefault(f"{kind} {codes}".strip(), []).append(seed)
    for name, seeds in sorted(by_kind.items(), key=lambda one: -len(one[1])):
        kind = name.partition(" ")[0]
        _say(f"\n{len(seeds)} {name}: {KINDS[kind]}; seeds {', '.join(map(str, seeds[:12]))}")
        found = []
        for seed in seeds[:most]:
            setting, steps = shrunk(*a_history(seed), kind)
            found.append((len(steps), seed, setting, steps))
        if found:
            _, seed, setting, steps = (
                min(found)[:4] if len(found) == 1 else min(found, key=lambda one: one[:2])
            )
            wrong = run_history(setting, steps).wrong
            _say(as_script(setting, steps, f"seed {seed}, {kind}: {wrong.what[:400] if wrong else ''}"))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
