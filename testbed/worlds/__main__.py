"""Answer random worlds by the proof and judge each answer: one seed, one world.

Prints how many were answered how, and every seed that was answered wrongly; the first of each kind is
shrunk and printed as a test. Ends with 1 if there is any.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time

from testbed.worlds.generator import a_world
from testbed.worlds.shrink import as_test, fault, kind_of, shrunk
from testbed.worlds.tally import Tally, judged, table

_CHUNK = 2_000
_TELL_S = 20.0


def main(arguments: list[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m testbed.worlds", description=__doc__)
    parser.add_argument("--worlds", type=int, default=100_000, help="how many; default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="of the first; each next one is one more")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shrink", type=int, default=3, help="kinds of wrong answers to print as tests")
    asked = parser.parse_args(arguments)
    first, last = asked.seed, asked.seed + asked.worlds
    chunks = [range(low, min(low + _CHUNK, last)) for low in range(first, last, _CHUNK)]
    began_s = told_s = time.monotonic()
    tally = Tally()
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        for done, part in enumerate(pool.imap_unordered(judged, chunks), 1):
            tally.plus(part)
            for seed, found in part.faults.items():
                _say(f"seed {seed}: {found}")
            if time.monotonic() - told_s > _TELL_S:
                told_s = time.monotonic()
                _say(f"{done * _CHUNK:,} worlds, {len(tally.faults)} wrong")
    _say(
        f"{asked.worlds:,} worlds, seeds {first} to {last - 1}: {len(tally.faults)} wrong; "
        f"{time.monotonic() - began_s:,.0f} s, {asked.worlds / tally.cpu_s:,.0f} a second and core\n"
    )
    _say(table(tally))
    _tell_faults(tally, asked.shrink)
    return 1 if tally.faults else 0


def _tell_faults(tally: Tally, most: int) -> None:
    by_kind: dict[str | None, list[int]] = {}
    for seed in sorted(tally.faults):
        by_kind.setdefault(kind_of(tally.faults[seed]), []).append(seed)
    for number, (kind, seeds) in enumerate(by_kind.items()):
        _say(f"\n{len(seeds)} wrong: {kind}; seeds {', '.join(map(str, seeds[:20]))}")
        if number < most:
            world = shrunk(a_world(seeds[0]))
            _say(f"\n{as_test(world, f'of_seed_{seeds[0]}', fault(world))}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
