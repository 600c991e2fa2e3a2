"""What must be so whatever happened: looked at in the stores themselves, behind every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.savepoint.repository.manifest_objects import find_manifest, is_tombstone
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

if TYPE_CHECKING:
    from testbed.histories.oracle import Life
    from testbed.histories.task import Task
    from testbed.histories.world import World


class Judge:
    """Looks at what there is, and tells the oracle."""

    def __init__(self, world: World) -> None:
        self._world, self._oracle = world, world.oracle

    def look(self) -> None:
        """Require that pinned savepoints are there, and that each that is there is whole."""
        self.note_savepoints()
        for root, life in self._world.lives.items():
            there = self.there(root)
            gone = sorted(life.pinned - life.disposed - there)
            if gone:
                self._oracle.say("pinned-gone", f"{', '.join(gone)} of {root}")
            stored = self.blobs(root)
            if damaged := sorted(one for one in there if not life.blobs[one] <= stored):
                self._oracle.say("damaged", f"{', '.join(damaged)} of {root}")

    def require_so(self, task: Task) -> None:
        """Require that what a task was asked for is so, if nobody else does anything."""
        step, world = task.step, self._world
        if any(one.alive and not one.done for one in world.tasks):
            return
        board = world.client(step.root, step.host).view.board
        current = board.current()
        claim = board.claim(current.value.generation) if current is not None else None
        beat = board.current_heartbeat()
        wrong = None
        if step.do == "start" and (current is None or current.value.generation != task.result):
            wrong = f"generation {task.result} does not have the job"
        elif step.do == "upgrade" and (claim is None or claim.launch["spec"]["script"] != step.script):
            wrong = f"{step.script} does not run"
        elif step.do == "migrate" and (claim is None or not claim.overrides):
            wrong = "the job does not read the new cluster"
        elif step.do == "stop" and (beat is None or beat.state != "closed"):
            wrong = "the job has not closed"
        if wrong is not None:
            self._oracle.say("green-for-nothing", f"{step.do} {step.who} succeeded, and {wrong}")

    def require_kept(self, life: Life, before: str | None, told: str) -> None:
        """Require that a prune has left the newest state of the job, or a newer one.

        Args:
            life: The job.
            before: What ``newest`` was.
            told: What the prune said.
        """
        if before is None or life not in self._world.lives.values():
            return
        after = self.newest(life)
        if after is None or _place(life, after) < _place(life, before):
            self._oracle.say("newest-gone", f"a prune disposed of {before}, the newest is {after} ({told})")

    def newest(self, life: Life) -> str | None:
        """Return the newest savepoint of the job's line."""
        root = next(root for root, one in self._world.lives.items() if one is life)
        there = self.there(root)
        on_line = [
            (_place(life, savepoint_id), savepoint_id)
            for savepoint_id, batches in life.savepoints.items()
            if savepoint_id in there and self._oracle.on_line(life, batches)
        ]
        return max(on_line)[1] if on_line else None

    def note_savepoints(self) -> None:
        """Note of each new savepoint which batches it holds."""
        for root, life in self._world.lives.items():
            for savepoint_id in self.there(root) - life.savepoints.keys():
                self._note(root, life, savepoint_id)

    def _note(self, root: str, life: Life, savepoint_id: str) -> None:
        repository = SavepointRepository(self._world.roots[root], self._world.job)
        found = find_manifest(repository, savepoint_id)
        if found is None:
            return
        batches = {}
        for query in found[0].queries:
            entry = query.file(f"offsets/{query.batch_id}")
            if entry is None:
                raise AssertionError(f"{savepoint_id} has no log of batch {query.batch_id}")
            text = repository.read_file(entry).decode()
            batches[query.name] = self._world.stamped(offset_log.parse(text))
        life.savepoints[savepoint_id] = batches
        life.blobs[savepoint_id] = frozenset(found[0].blobs)

    def there(self, root: str) -> set[str]:
        """Return the savepoints that are there."""
        folder, store = f"{self._world.job}/savepoints/", self._world.roots[root]
        return {
            key.removeprefix(folder).removesuffix(".json")
            for key in store.below(folder)
            if not is_tombstone(store.content(key) or b"")
        }

    def blobs(self, root: str) -> set[str]:
        """Return the blobs that are there."""
        folder = f"{self._world.job}/blobs/"
        return {key.removeprefix(folder) for key in self._world.roots[root].below(folder)}


def _place(life: Life, savepoint_id: str) -> int:
    """Return a number that grows along the job's line."""
    return max(batch.number for batch in life.savepoints[savepoint_id].values())
