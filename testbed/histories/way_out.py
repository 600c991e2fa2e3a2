"""The end of every history: nothing fails any more, and the rules alone must lead to a job that counts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.journal import has_ended, read_phases
from airflow_flinkstyle.jobs.retention import savepoints_in_use
from airflow_flinkstyle.savepoint.blobs.references import references
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from testbed.histories.steps import CUTOVERS, Step
from testbed.histories.task import LONG_S, Task, repeated, tried

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.histories.judge import Judge
    from testbed.histories.world import World

_MOST_CHECKPOINTS = 2
"""The one that is used, and the one before it."""
_TRIES = 8
"""How often a person tries before calling it stuck."""


class WayOut:
    """A person who does what the messages say."""

    def __init__(self, world: World, judge: Judge) -> None:
        self._world, self._judge, self._oracle = world, judge, world.oracle
        self._told: list[str] = []

    def take(self) -> str:
        """Bring every job that ever began to run and to count; returns what was done."""
        self._end_troubles()
        self._judge.look()
        for step in self._open_cutovers():
            self._told.append(self._finish(step))
        for root in self._begun():
            self._told += self._revive(root)
        self._require_released()
        for root in self._begun():
            self._require_counted(root)
            self._require_bounded(root)
        return "; ".join(filter(None, self._told))

    def _begun(self) -> list[str]:
        """Return the roots with a job that ever began; none once a promise was broken."""
        if self._oracle.wrong:
            return []
        return [root for root, life in self._world.lives.items() if life.began or life.choices]

    def _end_troubles(self) -> None:
        world = self._world
        world.next_fault = None
        for task in world.tasks:
            if task.frozen:
                world.machine.thaw(task)
        world.machine.run(lambda: all(task.is_over for task in world.tasks), LONG_S)
        for task in world.tasks:
            if not task.is_over:
                world.machine.kill(task)
        for driver in world.drivers:
            driver.fault = driver.dies_in = None

    # --- cutovers -----------------------------------------------------------------------------------

    def _open_cutovers(self) -> list[Step]:
        """Return the cutovers that have begun and are not at rest, as their journals say."""
        asked = {task.step.key: task.step for task in self._world.tasks if task.step.do in CUTOVERS}
        return [step for key, step in asked.items() if self._is_open(key, step)]

    def _is_open(self, key: str, step: Step) -> bool:
        phases = read_phases(self._world.roots[step.root], self._world.job).get(key, [])
        return not has_ended(phases) and bool({one.phase for one in phases} & {"standby", "stop"})

    def _finish(self, step: Step) -> str:
        """Clear a cutover's task until it rests, from the other host too."""
        told = ""
        for attempt in range(4):
            host = "ab"[attempt % 2] if attempt else step.host
            once = replace(step, fault=None, for_s=0.0, host=host)
            told = tried(self._world, once).told()
            if step.do == "migrate":
                told = f"{told}; {tried(self._world, replace(once, do='settle')).told()}"
            if not self._is_open(step.key, step) or self._oracle.wrong:
                break
        return f"{step.do}: {told}"

    def _require_released(self) -> None:
        if not self._world.kafka.is_held or self._oracle.wrong:
            return
        for step in self._open_cutovers():  # of a job that had to be brought up by hand
            self._told.append(self._finish(step))
        if self._world.kafka.is_held:
            self._oracle.say("held", "; ".join(self._told) or "no cutover is open")

    # --- the job ------------------------------------------------------------------------------------

    def _revive(self, root: str) -> list[str]:
        told: list[str] = []
        for number in range(_TRIES):
            status = self._status(root)
            if status == "Running" or self._oracle.wrong:
                return told
            do, how = _next_way(status, told)
            task = repeated(self._world, Step(do=do, root=root, how=how, who=900 + number, retries=2))
            told.append(f"{do} {how}: {task.told()}")
            self._world.machine.run(lambda: False, 70)
        self._oracle.say("stuck", f"{root}: {' | '.join(told)[-900:]}")
        return told

    def _status(self, root: str) -> str:
        """Return what the job does, as a task sees it that may wait until that is certain."""
        task = Task(self._world, Step(do="watch", root=root))

        def look() -> str:
            client = self._world.client(root, task.host)
            return type(client.view.settled_status(at_most_s=400)).__name__

        self._world.machine.spawn(task, lambda: task.run(look))
        self._world.machine.run(lambda: task.is_over, LONG_S)
        return str(task.result)

    def _require_counted(self, root: str) -> None:
        """Require that the job counts everything there is, unless its producers have gone without it."""
        kafka, life = self._world.kafka, self._world.lives[root]
        kafka.produce(3)
        if root != kafka.root and kafka.on_old < kafka.records:
            return

        def counted() -> bool:
            heads = [life.head.get(name) for name in self._world.queries]
            return all(head is not None and head.high >= kafka.records for head in heads)

        machine = self._world.machine
        if not machine.run(counted, 200) and self._status(root) == "Closed":
            self._told += self._revive(root)  # a stop whose caller is gone was served meanwhile
        if not machine.run(counted, 200) and not self._oracle.wrong:
            at = {name: str(life.head.get(name)) for name in self._world.queries}
            self._oracle.say("uncounted", f"{root}: {at}, of {kafka.records} records")

    def _require_bounded(self, root: str) -> None:
        """Require that a prune leaves what is needed, once the newest state is saved and verified."""
        life, world = self._world.lives[root], self._world
        repeated(world, Step(do="take", root=root, who=990, retries=2))
        self._judge.note_savepoints()
        newest = self._judge.newest(life)
        if newest is None or self._oracle.wrong:
            return
        known = [one for one in life.savepoints if one not in life.disposed]
        task = tried(world, Step(do="verify", root=root, who=991, which=known.index(newest)))
        if not task.succeeded:
            self._oracle.say("stuck", f"verify: {task.told()}")
            return
        task = repeated(world, Step(do="prune", root=root, who=992, many=1, retries=2))
        if not task.succeeded:
            self._oracle.say("stuck", f"prune: {task.told()}")
            return
        self._judge.note_savepoints()  # a request of a caller that is gone may have been served meanwhile
        self._require_no_more(root, newest, task.told())

    def _require_no_more(self, root: str, newest: str, told: str) -> None:
        world, life, there = self._world, self._world.lives[root], self._judge.there(root)
        repository = SavepointRepository(world.roots[root], world.job)
        in_use = savepoints_in_use(world.client(root, "a").view.board, repository)
        as_new = {one for one in there if life.savepoints[one] == life.savepoints[newest]}
        if left := there - {*as_new, *references(repository), *in_use}:
            self._oracle.say("storage", f"{sorted(left)} of {root}: {told}")
        if blobs := self._judge.blobs(root) - {blob for one in there for blob in life.blobs[one]}:
            self._oracle.say("storage", f"{len(blobs)} blobs of {root} that nothing needs")
        places = {one.claim.checkpoint_location for one in world.drivers if one.life is life and one.has_it}
        used = [place for place in places if any(disk.below(place[1:]) for disk in world.disks.values())]
        if world.setting.shared and len(used) > _MOST_CHECKPOINTS:
            self._oracle.say("checkpoints", f"{len(used)} of {root}")


def _next_way(status: str, told: Sequence[str]) -> tuple[str, str]:
    """Return what the last message says: what to ask for, and how."""
    if status in ("Dead", "Starting") and not (told and told[-1].startswith("watch")):
        return ("watch", "")
    last = next((one for one in reversed(told) if not one.startswith("watch")), "")
    went_back = any("start latest:fork" in one for one in told)
    if "LAST_STATE" in last or "discard_history" in last or "CHECKPOINT" in last:
        return ("start", "latest:fork" if "savepoint_id=" in last and not went_back else "fresh")
    return ("start", "fresh" if "start latest:fork" in last else "")
