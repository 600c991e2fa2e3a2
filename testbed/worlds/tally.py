"""How many worlds were answered how."""

from __future__ import annotations

import gc
import time
from collections import Counter
from dataclasses import dataclass, field

from testbed.worlds.generator import a_world
from testbed.worlds.judge import wrong
from testbed.worlds.proof import prove
from testbed.worlds.shrink import fault

_VERDICTS = ("Exact", "Bounded", "Refused")


@dataclass(slots=True)
class Tally:
    """What came of some worlds."""

    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By kind of world and verdict."""
    faults: dict[int, str] = field(default_factory=dict)
    """By seed."""
    cpu_s: float = 0.0

    def plus(self, other: Tally) -> None:
        """Add what came of other worlds."""
        self.verdicts += other.verdicts
        self.faults |= other.faults
        self.cpu_s += other.cpu_s


def judged(seeds: range) -> Tally:
    """Answer and judge the worlds of some seeds."""
    gc.set_threshold(100_000)  # worlds hold no cycles
    tally, began_s = Tally(), time.process_time()
    for seed in seeds:
        world = a_world(seed)
        try:
            answer = prove(world)
            found = wrong(world, answer)
            verdict = type(answer.verdict).__name__
        except Exception:  # noqa: BLE001 - whatever it is, its seed must be told
            found, verdict = fault(world), "Error"
        kinds = ("sole_writer" if world.sole_writer else "others", "dated" if world.dated else "undated")
        tally.verdicts[" ".join((*kinds, "mirror" if world.in_sync else "content only")), verdict] += 1
        if found is not None:
            tally.faults[seed] = found
    tally.cpu_s = time.process_time() - began_s
    return tally


def table(tally: Tally) -> str:
    """Return how many worlds of each kind were answered how, in Markdown."""
    kinds = sorted({kind for kind, _ in tally.verdicts})
    names = [*_VERDICTS, *sorted({name for _, name in tally.verdicts} - set(_VERDICTS))]
    rows = [
        "| worlds | " + " | ".join(name.lower() for name in names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for kind in (*kinds, "all"):
        counts = [
            sum(n for (k, v), n in tally.verdicts.items() if v == name and kind in (k, "all"))
            for name in names
        ]
        cells = [f"{count:,} ({count / max(1, sum(counts)):.0%})" for count in counts]
        rows.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(rows)
