"""What came of many histories, put together over processes."""

from __future__ import annotations

import gc
import time
from collections import Counter
from dataclasses import dataclass, field

from testbed.histories.generator import a_history
from testbed.histories.history import run_history


@dataclass(slots=True)
class Tally:
    """What came of some histories."""

    histories: int = 0
    steps: int = 0
    cpu_s: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    """What callers asked for, and whether it succeeded."""
    wrong: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Seed -> the promise that was broken, and how."""

    def plus(self, other: Tally) -> None:
        """Add the other's."""
        self.histories += other.histories
        self.steps += other.steps
        self.cpu_s += other.cpu_s
        self.done += other.done
        self.wrong |= other.wrong


def judged(seeds: range) -> Tally:
    """Let the histories of these seeds happen."""
    tally, began_s = Tally(), time.process_time()
    gc.disable()  # a history leaves little; collecting within it takes a tenth of the time
    for seed in seeds:
        setting, steps = a_history(seed)
        outcome = run_history(setting, steps)
        tally.histories += 1
        tally.steps += len(outcome.told)
        for step, told in zip(steps, outcome.told, strict=False):
            ended = told.partition(":")[0] if told else "happened"
            tally.done[f"{step.do} {ended}"] += 1
        if outcome.wrong is not None:
            tally.wrong[seed] = (outcome.wrong.kind, outcome.wrong.what)
    gc.collect()
    tally.cpu_s = time.process_time() - began_s
    return tally
