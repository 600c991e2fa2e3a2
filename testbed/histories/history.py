"""Run a history: step behind step, the oracle's word after each, and at its end the way out by the rules."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.histories.judge import Judge
from testbed.histories.machine import Fault, Machine, installed
from testbed.histories.steps import ASKED
from testbed.histories.task import repeated
from testbed.histories.way_out import WayOut
from testbed.histories.world import Setting, World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from testbed.histories.oracle import Wrong
    from testbed.histories.steps import Step
    from testbed.histories.task import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a history."""

    wrong: Wrong | None
    at: int
    """The step that showed it; behind the last one: the way out."""
    told: tuple[str, ...]
    """What came of each step."""


class History:
    """One history as it happens."""

    def __init__(self, setting: Setting) -> None:
        self._machine = Machine()
        self._world = World(self._machine, setting)
        self._judge = Judge(self._world)
        self._happens: dict[str, Callable[[Step], str | None]] = {
            "pass": lambda step: self._pass(step.seconds),
            "produce": lambda step: self._world.kafka.produce(step.many),
            "kill": self._kill,
            "next-driver": self._trouble_next,
            "lose-host": self._lose_host,
            "delete-root": self._delete_root,
            "thaw": self._thaw,
        }

    def run(self, steps: Sequence[Step]) -> Outcome:
        """Let it happen; ends with the first broken promise."""
        told: list[str] = []
        with installed(self._machine):
            for step in steps:
                told.append(self._step(step))
                self._judge.look()
                if self._world.oracle.wrong:
                    break
            else:
                told.append(WayOut(self._world, self._judge).take())
        wrong = self._world.oracle.wrong
        return Outcome(wrong=wrong[0] if wrong else None, at=len(told) - 1, told=tuple(told))

    def _step(self, step: Step) -> str:
        if step.do in ASKED:
            return self._ask(step)
        return self._happens[step.do](step) or ""

    def _ask(self, step: Step) -> str:
        life = self._world.lives[step.root]
        before = self._judge.newest(life)
        task = repeated(self._world, step, fault=Fault(*step.fault) if step.fault is not None else None)
        self._judge.note_savepoints()
        if step.do == "prune":
            self._judge.require_kept(life, before, task.told())
        if task.succeeded:
            self._judge.require_so(task)
        return task.told()

    # --- what happens by itself ---------------------------------------------------------------------

    def _pass(self, seconds: float) -> None:
        self._machine.run(lambda: False, seconds)

    def _kill(self, step: Step) -> str:
        """Kill the newest driver of a root, now or at a moment that comes."""
        alive = [one for one in self._world.drivers if one.alive and one.root == step.root]
        if not alive:
            return "no driver"
        driver = alive[-1]
        if step.how == "batch":
            driver.dies_in = self._world.queries[step.which % len(self._world.queries)]
            self._world.kafka.produce(1)
            self._machine.run(lambda: not driver.alive, 30)
        elif step.many == 0:
            self._machine.kill(driver)
        else:
            driver.fault = Fault("die", driver.calls + step.many)
            self._machine.run(lambda: not driver.alive, 60)
        return f"a driver: {driver.name}"

    def _trouble_next(self, step: Step) -> None:
        self._world.next_fault = Fault(*(step.fault or ("die", 1)))

    def _kill_tasks(self, which: Callable[[Task], bool]) -> None:
        for task in self._world.tasks:
            if which(task):
                self._machine.kill(task)

    def _lose_host(self, step: Step) -> None:
        self._world.lose_disk(step.host)
        self._kill_tasks(lambda task: task.host == step.host)

    def _delete_root(self, step: Step) -> None:
        """Delete what is of the job below a root, whoever is at work on it; drivers notice it."""
        self._world.delete_root(step.root)
        self._kill_tasks(lambda task: task.step.root == step.root)
        self._pass(2 * self._world.lease_s)

    def _thaw(self, _: Step) -> None:
        for task in self._world.tasks:
            if task.frozen:
                self._machine.thaw(task)
        self._pass(30)


def run_history(setting: Setting, steps: Sequence[Step]) -> Outcome:
    """Run one history, quietly."""
    logging.disable(logging.CRITICAL)
    try:
        return History(setting).run(steps)
    finally:
        logging.disable(logging.NOTSET)
