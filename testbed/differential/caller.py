"""A caller that runs a script under the agent and carries out a plan meanwhile."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.base import Gone
from airflow_flinkstyle.jobs.errors import JobNotRunningError
from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
from airflow_flinkstyle.jobs.start.origins import Fresh, FromCheckpoint, FromSavepoint, LastState
from airflow_flinkstyle.jobs.status import Closed, Dead, Failed, NeverStarted, Running
from airflow_flinkstyle.jobs.stopped.saving import take_stopped
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_store
from testbed.differential.inputs import PARTS
from testbed.differential.plan import BACK, REWINDS
from testbed.differential.stage import driver_env, spark_conf
from testbed.keys import SIGNER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.deployments.base import Deployment
    from airflow_flinkstyle.jobs.start.origins import Origin
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.types import Generation
    from testbed.differential.outputs import Written
    from testbed.differential.plan import Plan, Step
    from testbed.differential.stage import Stage

LEASE_S = 8.0
STUCK_S = 240.0
"""Longest wait for anything; a machine under load is slow."""
_MOMENT_S = 8.0
"""Longest wait for the next commit of a plan's moment: the script may have no batch to give it."""
_TAKES = 4
_LOOK_S = 0.05
_SETTLED_S = 1.0
_IDLE_S = 60.0
"""Without a commit: longer than a batch takes on a busy machine, in a JVM that has just started."""


class ScriptFailed(Exception):  # an outcome, not an error of the test bed
    """The run ended with an error; ``code`` is the agent's name for it."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text


class Stuck(Exception):  # an outcome, not an error of the test bed
    """Nothing happened any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound:
    """The job went back to a savepoint."""

    batches: Mapping[str, int]
    """Query -> batch of the savepoint."""
    written: Mapping[int, list[Written]]
    """Place of a query -> what stood in its output at that time."""


@dataclass(slots=True, kw_only=True)
class History:
    """What happened to the job."""

    done: list[str] = field(default_factory=list)
    """Actions that had an effect."""
    missed: list[str] = field(default_factory=list)
    """Actions that found nothing to act on: the script was faster."""
    refused: list[str] = field(default_factory=list)
    """Error codes of actions that were refused."""
    reasons: list[str] = field(default_factory=list)
    """What the refusals said."""
    killed: bool = False
    rewound: Rewound | None = None


class Caller:
    """One job, and what a person does with it."""

    def __init__(
        self,
        stage: Stage,
        deployment: Deployment,
        *,
        expect_kill: Callable[[], None],
        conf: Mapping[str, str],
        is_right: Callable[[History], bool],
    ) -> None:
        """Know the job; nothing is started.

        Args:
            stage: Where the script runs.
            deployment: What runs it.
            expect_kill: Called a while before a driver is killed.
            conf: Settings of the drivers beside those of every driver.
            is_right: Whether the outputs are what they should be in the end, to know when that is.
        """
        self.stage, self.spec, self.history = stage, stage.spec, History()
        self._expect_kill, self._is_right = expect_kill, is_right
        self._root = stage.folder / "root"
        store = open_store(str(self._root))
        self.client = JobClient(
            view=JobView(
                board=JobBoard(store, "job"),
                repository=SavepointRepository(store, "job"),
                deployment=deployment,
                signer=SIGNER,
                poll_s=_LOOK_S,
                base_env=driver_env(stage.folder),
            )
        )
        self.job = JobSpec(
            name="job",
            script=str(stage.script),
            args=stage.args,
            conf={**spark_conf(), **conf},
            checkpoint_root=str(stage.folder / "generations"),
            lease_s=LEASE_S,
        )
        self.target = SubmitTarget(
            master="local[2]",
            python=sys.executable,
            working_dir=str(stage.folder),
            log_dir=str(stage.folder / "logs"),
        )
        self._keys = 0
        self._taken: Manifest | None = None
        self._origin: Origin = LastState()
        """Of the next start of a script that has ended."""

    # --- the plan -------------------------------------------------------------------------------

    def run(self, plan: Plan) -> History:
        """Carry the plan out; returns when the job has closed with all input read.

        Raises:
            ScriptFailed: If the run failed where nothing was refused.
            Stuck: If it neither got on nor ended.
        """
        if plan.kills:
            self._expect_kill()
        for number, step in enumerate(plan.steps, 1):
            if step.feeds:
                self.stage.feed.add(self.stage.feed.parts + 1 if number < len(plan.steps) else PARTS)
                self._be_running()
            if not step.between:
                self.stage.release()
            self._await_moment(step)
            self._act(step)
            if self.spec.is_bounded:
                self.stage.release()
                self._await_end()
        self.stage.release()
        if not self.spec.is_bounded:
            self._await_right()
            self._stop(savepoint=False)
            self._require_well()
        return self.history

    def _key(self, what: str) -> str:
        self._keys += 1
        return f"{what}-{self._keys}"

    def _be_running(self) -> None:
        """Start the job if it does not run: a person who runs a bounded script does it once more."""
        status = self.client.view.status()
        if isinstance(status, NeverStarted):
            self._start(Fresh())
        elif isinstance(status, Closed):
            origin, self._origin = self._origin, LastState()
            self._start(origin)

    def _start(self, origin: Origin) -> None:
        self.stage.hold()
        handle = self.client.starts.start(self.job, self.target, claim_key=self._key("start"), origin=origin)
        self._await_up(handle.generation)

    def _await_up(self, generation: Generation) -> None:
        def up() -> bool:
            status = self.client.view.status()
            own = not isinstance(status, NeverStarted) and status.run.generation == generation
            return own and isinstance(status, (Running, Closed, Failed, Dead))

        self._until(up, "the driver runs")
        self._require_well()

    def _await_moment(self, step: Step) -> None:
        if self._await_commits(self._commits() + step.batches * step.feeds):
            time.sleep(step.delay_ms / 1000)

    def _await_commits(self, count: int) -> bool:
        """Wait for so many commits, or until none comes any more; returns whether the script still runs."""
        seen, until_s = -1, 0.0
        while isinstance(self.client.view.status(), Running):
            if (found := self._commits()) != seen:
                seen, until_s = found, time.monotonic() + _MOMENT_S
            if found >= count or time.monotonic() > until_s:
                return True
            time.sleep(_LOOK_S)
        return False

    def _commits(self) -> int:
        """Count the commits in all checkpoints there ever were, the restored ones included."""
        folder = self.stage.folder / "generations"
        return sum(1 for path in folder.glob("job/*/*/commits/*") if path.name.isdigit())

    def _act(self, step: Step) -> None:
        action = step.action
        self._require_well()
        if action == "none":
            return
        running = isinstance(self.client.view.status(), Running)
        needs_driver = action in ("kill-relaunch", "kill-from-checkpoint", "from-checkpoint")
        if (needs_driver and not running) or (action in BACK and self._taken is None):
            self.history.missed.append(action)
            return
        try:
            self._do(action)
        except FlinkstyleError as error:
            self.history.refused.append(error.code)
            self.history.reasons.append(f"{action}: {error}")
            self._require_well()
        else:
            self.history.done.append(action)

    def _do(self, action: str) -> None:
        match action:
            case "take":
                self._take()
            case "from-savepoint":
                self._go_on_from_savepoint()
            case "from-checkpoint":
                self._stop(savepoint=False)
                self._start(FromCheckpoint())
            case "kill-relaunch":
                self._kill()
                self._relaunch()
            case "kill-from-checkpoint":
                self._kill()
                self._start_from_what_it_left()
            case _:
                self._go_back(action)

    def _take(self) -> None:
        """Take a savepoint; ask again a while later where a query has no batch yet."""
        for tries_left in reversed(range(_TAKES)):
            count = self._commits()
            try:
                pending = self.client.requests.request_savepoint(self._key("take"))
                pending, end = self.client.requests.wait(pending, timeout_s=STUCK_S, relaunch=False)
            except JobNotRunningError:  # the script was faster
                self._taken = self._take_of_ended()
                return
            if end.outcome == "done":
                self._taken = self.client.requests.published(pending)
                return
            self._await_commits(count + 1)
            if not tries_left:
                raise _Refused(end.detail)

    def _take_of_ended(self) -> Manifest:
        """Take a savepoint of a script that has ended; the status tells no longer that it failed."""
        self._require_well()
        return take_stopped(self.client.view, self._key("take"))

    def _go_on_from_savepoint(self) -> None:
        """Stop with a savepoint and start from it; a script that has ended, once there is more to read."""
        savepoint_id = self._stop(savepoint=True)
        if savepoint_id is not None:
            self._start(FromSavepoint(savepoint_id=savepoint_id))
        else:
            self._origin = FromSavepoint(savepoint_id=self._take_of_ended().savepoint_id)

    def _stop(self, *, savepoint: bool) -> str | None:
        """Stop the job if it runs; returns the savepoint."""
        if not isinstance(self.client.view.status(), Running):
            return None
        stopped = self.client.requests.stop(self._key("stop"), savepoint=savepoint, timeout_s=STUCK_S)
        self._await_gone()
        return stopped.savepoint_id

    def _kill(self) -> None:
        self.client.drivers.end_driver(self._generation())
        self.history.killed = True

    def _start_from_what_it_left(self) -> None:
        """Start from a dead run's checkpoint; or its driver again, where it left too little for that."""
        try:
            self._start(FromCheckpoint())
        except FlinkstyleError:
            self._relaunch()
            raise

    def _relaunch(self) -> None:
        self.stage.hold()
        self.client.drivers.ensure_running()
        self._await_up(self._generation())

    def _go_back(self, action: str) -> None:
        """Stop, and start from the savepoint that was taken before; or go on if that is refused."""
        assert self._taken is not None  # noqa: S101  # _act has looked
        self._stop(savepoint=False)
        if action in REWINDS:
            places = range(len(self.spec.queries))
            self.history.rewound = Rewound(
                batches={query.name: query.batch_id for query in self._taken.queries},
                written={place: list(self.stage.written(place)) for place in places},
            )
        rewind = "continue" if action == "continue-from-take" else action
        try:
            self._start(FromSavepoint(savepoint_id=self._taken.savepoint_id, rewind=rewind))  # type: ignore[arg-type]
        except (FlinkstyleError, ScriptFailed) as refusal:
            code = refusal.code
            if code == "SCRIPT_FAILED":
                raise
            self.history.rewound = None
            self._start(LastState())
            raise _Refused(f"{code}: {refusal}") from refusal

    # --- waiting --------------------------------------------------------------------------------

    def _generation(self) -> Generation:
        status = self.client.view.status()
        assert not isinstance(status, NeverStarted)  # noqa: S101  # it was started
        return status.run.generation

    def _await_end(self) -> None:
        """Wait for a bounded script's end, with nobody's help."""
        self._until(lambda: not isinstance(self.client.view.status(), Running), "the script ends")
        self._require_well()
        self._await_gone()

    def _await_gone(self) -> None:
        run = self.client.view.run(self._generation())
        native_id = run.submit.native_id or None if run.submit else None
        incarnation = run.incarnation
        if incarnation is not None and (
            record := self.client.view.board.incarnation(run.generation, incarnation)
        ):
            native_id = self.client.view.deployment.native_id(record)
        if native_id is not None:  # else it is a caller's, which has no driver
            deployment = self.client.view.deployment
            self._until(lambda: isinstance(deployment.state(native_id), Gone), "the driver ends")

    def _await_right(self) -> None:
        """Wait until the outputs are what they should be, or nothing has changed for a while.

        A rate source never rests: there it is enough that they are right.
        """
        settled_s = 0.0 if any(query.source == "rate" for query in self.spec.queries) else _SETTLED_S
        count, changed_s = -1, time.monotonic()
        until_s = time.monotonic() + STUCK_S
        while time.monotonic() < until_s:
            self._require_well()
            if self._commits() != count:
                count, changed_s = self._commits(), time.monotonic()
            idle_s = time.monotonic() - changed_s
            if idle_s > _IDLE_S or (idle_s >= settled_s and self._is_right(self.history)):
                return
            time.sleep(0.1)

    def _require_well(self) -> None:
        status = self.client.view.status()
        if isinstance(status, Failed):
            raise ScriptFailed(status.code, status.text)
        if isinstance(status, Dead):
            raise Stuck(f"The driver died: {self.client.view.log_tail(status.run)[-2000:]}")

    def _until(self, check: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + STUCK_S
        while not check():
            if time.monotonic() > until_s:
                raise Stuck(f"Never: {what}")
            time.sleep(_LOOK_S)

    # --- for the judge --------------------------------------------------------------------------

    def checkpoints(self) -> Mapping[str, Path]:
        """Return where the checkpoints of the last run stand, by the names of its queries."""
        folder = Path(self.client.view.run(self._generation()).claim.checkpoint_location)
        return {path.parent.name: path.parent for path in folder.glob("*/metadata")}


class _Refused(FlinkstyleError):
    """A request that the driver refused; its code stands in the end report."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, state_after="", remedy="")
        named = re.match(r"[A-Z][A-Z_]+(?=:)", detail)
        self.code = named[0] if named else "REQUEST_FAILED"  # another one each time
