"""One try of a task: a process that asks for one thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import FlinkstyleError
from testbed.histories.machine import Process
from testbed.histories.steps import Asker

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.histories.machine import Fault
    from testbed.histories.steps import Step
    from testbed.histories.world import World

LONG_S = 3000.0
"""After which a task is ended, as by Airflow's own time-out."""


class Task(Process):
    """One try of a task."""

    def __init__(self, world: World, step: Step, *, fault: Fault | None = None) -> None:
        ahead_s = world.setting.ahead_s if step.host == "b" else 0.0
        super().__init__(f"{step.do} {step.who}", step.host, ahead_s=ahead_s)
        self.step, self.world, self.fault = step, world, fault
        self.done = False
        self.result: Any = None
        self.error: FlinkstyleError | None = None
        self.crash: Exception | None = None

    def run(self, ask: Callable[[], Any] | None = None) -> None:
        """Do it, or ask for something else, and keep what came of it."""
        try:
            self.result = ask() if ask is not None else Asker(self.world, self.step).run()
        except FlinkstyleError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - the oracle judges
            self.crash = error
            self.world.oracle.say("crash", f"{self.name}: {type(error).__name__}: {error}")
        self.done = True

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it, for now."""
        return self.done or not self.alive or self.frozen

    @property
    def succeeded(self) -> bool:
        """Whether it is green."""
        return self.done and self.error is None and self.crash is None

    @property
    def is_retried(self) -> bool:
        """Whether Airflow would try it again: its worker has died, or it failed of what may pass."""
        return not self.alive or (self.error is not None and self.error.retryable)

    def told(self) -> str:
        """Say what came of it."""
        if self.error is not None:
            return f"{self.error.code}: {self.error.problem}"
        if self.crash is not None:
            return f"{type(self.crash).__name__}: {self.crash}"
        if self.done:
            return f"done: {self.result!r:.200}"
        return "killed" if not self.alive else "frozen" if self.frozen else "goes on"


def tried(world: World, step: Step, *, fault: Fault | None = None, for_s: float = 0.0) -> Task:
    """Try a task, and wait for its end, or for so long; it is then ended, or goes on beside what follows."""
    task = Task(world, step, fault=fault)
    world.tasks.append(task)
    world.machine.spawn(task, task.run)
    world.machine.run(lambda: task.is_over, for_s or LONG_S)
    if not task.is_over and not for_s:
        world.machine.kill(task)
    return task


def repeated(world: World, step: Step, *, fault: Fault | None = None) -> Task:
    """Try a task as often as Airflow does; what befalls it befalls the first try."""
    task = tried(world, step, fault=fault, for_s=step.for_s)
    for _ in range(step.retries):
        if not task.is_retried:
            break
        task = tried(world, step, for_s=step.for_s)
    return task
