"""The whole life of a job, in one phase of which another system answers with an error.

After it nobody helps but who always does: Airflow's retries, and a watcher that looks each minute. Only where
the list of what lasts has the answer, a person corrects the cause and asks for the same once more.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from testbed.histories.judge import Judge
from testbed.histories.machine import Machine, installed
from testbed.histories.steps import ASKED, Step
from testbed.histories.task import tried
from testbed.histories.troubles import ANSWERS, Trouble
from testbed.histories.world import Setting, World

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_flinkstyle.errors import FlinkstyleError
    from testbed.histories.oracle import Wrong
    from testbed.histories.task import Task
    from testbed.histories.troubles import Answer

PHASES: Final[Mapping[str, Sequence[Step]]] = {
    "start": (Step(do="produce", many=3), Step(do="start", who=1)),
    "run": (Step(do="produce", many=2), Step(do="pass", seconds=20)),
    "take": (Step(do="take", who=2),),
    "stop": (Step(do="produce", many=1), Step(do="stop", who=3)),
    "start again": (Step(do="produce", many=1), Step(do="start", who=4)),
    "upgrade": (Step(do="produce", many=1), Step(do="upgrade", who=5, script="v2")),
    "relaunch": (Step(do="kill"), Step(do="produce", many=2), Step(do="watch", who=6)),
    "roll back": (Step(do="rollback", who=7),),
    "prune": (Step(do="take", who=8), Step(do="produce", many=1), Step(do="prune", who=9, many=1)),
    "migrate": (Step(do="migrate", who=10), Step(do="settle", who=10)),
    "start from checkpoint": (Step(do="kill"), Step(do="pass", seconds=70), Step(do="start", who=11)),
    "last stop": (Step(do="produce", many=1), Step(do="stop", who=12)),
}
DOWN: Final = frozenset({"stop", "last stop"})
"""Phases after which the job is meant to be down."""
_LASTS_S: Final = (0.0, 0.0, 5.0, 40.0, 300.0)
_RETRIES, _RETRY_PAUSE_S = 10, 60.0
"""Of tasks, as people set them: longer than any trouble here lasts."""
_LOOKS, _LOOK_S = 45, 60.0
"""Of the watcher: for longer than a failure that passes is met."""
_GAVE_UP: Final = frozenset({"ROLLED_BACK", "UPGRADE_ROLLED_BACK", "MIGRATION_ENDED"})
"""How a cutover ends that has gone back by itself: the job runs as before, nobody is needed."""
Outcome = Literal["unnoticed", "by itself", "went back", "stands", "did not come"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("unnoticed", "by itself", "went back", "stands")
"""Nobody saw anything; a retry or the watcher was needed; the cutover was given up, and the job runs on as it
did; an error names what to correct. Beside these: a trouble came to no call, since there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """What became of a job."""

    phase: str
    trouble: Trouble
    outcome: Outcome
    wrong: Wrong | None
    told: tuple[str, ...]
    """What came of each step."""


class WholeJob:
    """One job from its first start to its last stop."""

    def __init__(self, setting: Setting, phase: str, trouble: Trouble | None) -> None:
        self._machine = Machine()
        self._world = World(self._machine, setting)
        self._judge = Judge(self._world)
        self._phase, self._trouble = phase, trouble
        self._answer = ANSWERS[trouble.system, trouble.name] if trouble is not None else None
        self._script = "v1"
        self._outcome: Outcome = "did not come"
        self._number = 900
        self._retried = False
        self.told: list[str] = []
        self.calls: dict[str, Mapping[str, int]] = {}
        """Phase -> place -> calls."""

    def run(self) -> Wrong | None:
        """Let it happen; returns the first broken promise."""
        oracle = self._world.oracle
        with installed(self._machine):
            for phase, steps in PHASES.items():
                self._live(phase, steps)
                if oracle.wrong:
                    break
        return oracle.wrong[0] if oracle.wrong else None

    @property
    def outcome(self) -> Outcome:
        """What became of the job in the phase of the trouble."""
        return self._outcome

    def _live(self, phase: str, steps: Sequence[Step]) -> None:
        troubles = self._world.troubles
        mine = self._trouble is not None and phase == self._phase
        troubles.tell(self._trouble if mine else None)
        errors = [error for step in steps if (error := self._do(step)) is not None]
        errors += self._watch(phase, insist=all(error.code in _GAVE_UP for error in errors))
        self.calls[phase] = dict(troubles.counts)
        came = troubles.came
        troubles.tell(None)
        if mine and came:
            self._outcome = self._judged(errors)
        self._retried = False
        if errors and self._answer is not None and self._answer.is_final and not self._world.oracle.wrong:
            self._correct(phase, steps)
        if not self._world.oracle.wrong:
            self._require_well(phase)

    # --- what is asked ------------------------------------------------------------------------------

    def _do(self, step: Step) -> FlinkstyleError | None:
        """Do a step; returns the error that Airflow does not try again."""
        if self._world.oracle.wrong:
            return None
        if step.do not in ASKED:
            self._happen(step)
            return None
        if step.do == "upgrade":
            self._script = step.script
        elif step.do == "rollback":
            self._script = "v1"
        before = self._judge.newest(self._world.lives["r1"])
        task = self._asked(replace(step, script=self._script) if step.do == "start" else step)
        self.told.append(f"{step.do} {step.who}: {task.told()}")
        self._judge.note_savepoints()
        self._judge.look()
        if step.do == "prune":
            self._judge.require_kept(self._world.lives["r1"], before, task.told())
        if task.succeeded:
            self._judge.require_so(task)
            return None
        if task.is_retried:
            self._say("stuck", f"{step.do} was tried {_RETRIES} times: {task.told()}")
        return task.error

    def _asked(self, step: Step) -> Task:
        """Ask as a task that Airflow tries again; each try but the first makes the trouble a noticed one."""
        task = tried(self._world, step)
        for _ in range(_RETRIES):
            if not task.is_retried or self._world.oracle.wrong:
                break
            self._retried = True
            self.told.append(f"{step.do} {step.who}, tried again: {task.told()}")
            self._pass(_RETRY_PAUSE_S)
            task = tried(self._world, step)
        return task

    def _happen(self, step: Step) -> None:
        match step.do:
            case "produce":
                self._world.kafka.produce(step.many)
            case "kill":
                for driver in self._world.drivers:
                    if driver.alive:
                        self._machine.kill(driver)
            case _:
                self._pass(step.seconds)

    def _pass(self, seconds: float) -> None:
        self._machine.run(lambda: False, seconds)

    def _watch(self, phase: str, *, insist: bool) -> list[FlinkstyleError]:
        """Look after the job each minute until it runs and counts, as a watcher does, or a person is needed.

        A driver that runs may be about to end of what it met. ``insist``: no task has said yet that a person
        is needed.
        """
        if phase in DOWN:
            return []
        for _ in range(_LOOKS):
            if self._world.oracle.wrong or self._machine.run(self._counted, _LOOK_S):
                return []
            self._retried = True
            self._number += 1
            task = tried(self._world, Step(do="watch", who=self._number))
            self.told.append(f"watch: {task.told()}")
            if task.error is not None and not task.error.retryable:
                return [task.error]
            if not insist and task.result in ("Closed", "NeverStarted"):
                return []
        self._say("stuck", f"a watcher looked {_LOOKS} times: {self.told[-1]}")
        return []

    def _counted(self) -> bool:
        """Return whether every query has counted every record."""
        heads = [self._world.lives["r1"].head.get(name) for name in self._world.queries]
        return all(head is not None and head.high >= self._world.kafka.records for head in heads)

    def _runs(self) -> bool:
        """Return whether a driver has the job and is asked for nothing: looked at in the world itself."""
        return any(one.alive and one.has_it for one in self._world.drivers)

    # --- what came of it ------------------------------------------------------------------------------

    def _judged(self, errors: Sequence[FlinkstyleError]) -> Outcome:
        """Judge what those errors say that Airflow does not try again."""
        answer = self._answer
        if answer is None:
            raise AssertionError("nothing was told")
        lasting = [error for error in errors if error.code not in _GAVE_UP]
        if lasting and not answer.is_final:
            error = lasting[0]
            self._say("final-unlisted", f"{answer.system} {answer.name}: {error.code}: {error}")
        elif lasting and not any(_names(error, answer) for error in lasting):
            error = lasting[0]
            self._say("unnamed", f"{answer.system} {answer.name}: {error.code}: {error}")
        if lasting:
            return "stands"
        if errors:
            return "went back"
        return "by itself" if self._retried else "unnoticed"

    def _correct(self, phase: str, steps: Sequence[Step]) -> None:
        """Let a person correct the cause, ask for the same once more, and start the job if it is down."""
        for step in steps:
            if step.do in ASKED:
                self._do(step)
        if phase not in DOWN and not self._runs():
            self._number += 1
            self._do(Step(do="start", who=self._number))

    def _require_well(self, phase: str) -> None:
        """Require that the job is as the phase leaves it, and counts all records."""
        if phase in DOWN:  # a driver that was not told that its last word has arrived takes a moment
            if not self._machine.run(lambda: not self._runs(), self._world.lease_s):
                self._say("green-for-nothing", f"the job runs after {phase}")
            return
        if self._world.kafka.is_held:
            self._say("held", self.told[-1])
        elif not self._machine.run(self._counted, 200):
            self._say("uncounted", f"after {phase}: {self.told[-3:]}")

    def _say(self, kind: str, what: str) -> None:
        self._world.oracle.say(kind, what)


def _names(error: FlinkstyleError, answer: Answer) -> bool:
    """Return whether an error says what was answered, so that a person knows what to correct."""
    said = str(error)
    words = (answer.name.rpartition(".")[2], answer.said)
    return any(one and one in said for one in words) and bool(error.remedy)


@cache
def calls_of(setting: Setting) -> Mapping[str, Mapping[str, int]]:
    """Return how often each place is called in each phase if nothing goes wrong."""
    job = WholeJob(setting, "", None)
    wrong = job.run()
    if wrong is not None:
        raise AssertionError(f"{wrong}: {job.told}")
    return job.calls


def every_case() -> list[tuple[str, Answer]]:
    """Return every answer in every phase in which its place is called."""
    calls = calls_of(Setting())
    return [
        (phase, answer)
        for answer in ANSWERS.values()
        for phase in PHASES
        if calls[phase].get(answer.place, 0) > 0
    ]


def a_case(number: int) -> tuple[Setting, str, Trouble]:
    """Return one of all cases, with what chance decides by its number: where, how long, in which job."""
    cases = every_case()
    phase, answer = cases[number % len(cases)]
    draw = random.Random(number)  # noqa: S311 - to be repeated
    setting = Setting(
        queries=draw.choice((1, 1, 2)),
        sink="kafka" if answer.place == "sink" else draw.choice(("kafka", "delta", "foreachBatch")),
    )
    calls = calls_of(setting)[phase][answer.place]
    trouble = Trouble(
        system=answer.system,
        name=answer.name,
        at=draw.randint(1, calls),
        lasts_s=draw.choice(_LASTS_S),
        took_effect=draw.random() < 0.3,
    )
    return setting, phase, trouble


def lived(setting: Setting, phase: str, trouble: Trouble) -> Lived:
    """Let a job live with a trouble in a phase."""
    job = WholeJob(setting, phase, trouble)
    wrong = job.run()
    return Lived(phase=phase, trouble=trouble, outcome=job.outcome, wrong=wrong, told=tuple(job.told))


def all_lived(numbers: Sequence[int]) -> Iterator[Lived]:
    """Let jobs live, one for each number, quietly."""
    logging.disable(logging.CRITICAL)
    try:
        for number in numbers:
            yield lived(*a_case(number))
    finally:
        logging.disable(logging.NOTSET)
