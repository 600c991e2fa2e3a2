"""What can happen to a job: what callers ask, what fails, what is lost; each a value that can be replayed."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.migration.cutover import PHASES, Cutover
from airflow_flinkstyle.jobs.request import SavepointOnly, stop_incomplete
from airflow_flinkstyle.jobs.request_slot import PendingRequest, digest_of
from airflow_flinkstyle.jobs.retention import dispose_of, prune_job
from airflow_flinkstyle.jobs.start import choice
from airflow_flinkstyle.jobs.start.origins import Fresh, FromCheckpoint, FromSavepoint, LastState
from airflow_flinkstyle.jobs.status import Starting
from airflow_flinkstyle.jobs.stopped.last_run import failed_before, recorded_launch
from airflow_flinkstyle.jobs.upgrade.on_demand import roll_back_to
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from airflow_flinkstyle.savepoint.blobs.references import pin, unpin
from airflow_flinkstyle.savepoint.exchange.export import export_savepoint
from airflow_flinkstyle.savepoint.exchange.importing import import_savepoint
from airflow_flinkstyle.savepoint.files.verified import check_savepoint
from airflow_flinkstyle.savepoint.repository.summary import newest_summary
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from testbed.histories.oracle import Choice
from testbed.histories.places import Place, RootStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.start.origins import Origin
    from testbed.histories.oracle import Batch
    from testbed.histories.world import World

SETTINGS = CutoverSettings(
    standby_timeout_s=120,
    hold_timeout_s=20,
    steady_window_s=1,
    caught_up_timeout_s=20,
    stop_timeout_s=200,
    takeover_timeout_s=120,
    first_commit_timeout_s=20,
)
ASKED = frozenset(
    {
        *("start", "stop", "take", "upgrade", "rollback", "migrate", "settle", "watch"),
        *("prune", "pin", "unpin", "verify", "dispose", "import"),
    }
)
"""What a caller does; the rest happens by itself."""
CUTOVERS = frozenset({"upgrade", "rollback", "migrate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that happens."""

    do: str
    root: str = "r1"
    host: str = "a"
    who: int = 0
    """Whose request it is: the same number with the same answers is a task that is cleared."""
    how: str = ""
    script: str = "v1"
    which: int = 0
    """The savepoint, counted from the first, as far as there are any."""
    many: int = 0
    seconds: float = 0.0
    fault: tuple[str, int] | None = None
    """What happens at which call to a store."""
    retries: int = 1
    for_s: float = 0.0
    """How long the history waits for it; 0: to its end."""

    def __repr__(self) -> str:
        """Show what is not as always."""
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if field.name == "do" or getattr(self, field.name) != field.default
        ]
        return f"Step({', '.join(shown)})"

    @property
    def key(self) -> str:
        """Return the key of the request, as the operators make it: who asks, and what."""
        told: dict[str, dict[str, Any]] = {
            "start": {"script": self.script, "how": self.how, "which": self.which},
            "upgrade": {"script": self.script},
            "rollback": {"how": self.how, "which": self.which},
        }
        asked = told.get(self.do)
        who = "migrate" if self.do == "settle" else self.do
        return f"{who}-{self.who}-{digest_of(str(self.who), asked=asked)[:6]}"


class Asker:
    """Does for a task what its operator does."""

    def __init__(self, world: World, step: Step) -> None:
        self.world, self.step = world, step
        self.life = world.lives[step.root]
        self.off_line: str | None = None
        """A savepoint that was found as ``latest`` and is of another line."""

    def run(self) -> Any:  # noqa: ANN401
        """Do it; a new client every time, as every try has."""
        client = self.world.client(self.step.root, self.step.host)
        return getattr(self, self.step.do)(client)

    # --- runs -------------------------------------------------------------------------------------

    def start(self, client: JobClient) -> int:
        """Start the job, and wait until it runs."""
        origin = self._origin(client)
        spec = self.world.spec(self.step.script, new=self._is_on_new(client, origin))
        handle = client.starts.start(spec, self.world.target(), claim_key=self.step.key, origin=origin)
        if self.off_line is not None:
            self.world.oracle.say(
                "abandoned", f"'latest' was {self.off_line}, which is on no line of the job"
            )
        client.drivers.wait_running(handle.generation, timeout_s=200)
        return int(handle.generation)

    def _is_on_new(self, client: JobClient, origin: Origin) -> bool:
        """Return whether people start the job on the new cluster: it ran there, or was saved there."""
        current = client.view.board.current()
        if current is not None:
            return bool(client.view.claim(current.value.generation).overrides)
        savepoint_id = origin.savepoint_id if isinstance(origin, FromSavepoint) else self._latest(client)
        found = client.view.repository.find(savepoint_id)
        return found is not None and any(
            at.cluster_id == "new" for query in found.queries for at in query.kafka.values()
        )

    def _origin(self, client: JobClient) -> Origin:
        how, _, rewind = self.step.how.partition(":")
        match how:
            case "" | "last_state":
                return LastState()
            case "checkpoint":
                return FromCheckpoint()
            case "fresh":
                history = choice.history_of(client.view)
                none: dict[str, Any] = dict.fromkeys(self.world.queries)
                self._choose(Choice(batches=none, what="fresh", new_sink=True))
                return Fresh(discard_history=history.name if history else None)
            case _:
                return self._from_savepoint(client, how, rewind)

    def _from_savepoint(self, client: JobClient, how: str, rewind: str) -> Origin:
        savepoint_id = self._latest(client) if how == "latest" else self._savepoint()
        batches = self.life.savepoints.get(savepoint_id, {})
        if rewind and batches and how == "latest" and self.life.began:
            self.off_line = None if self.world.oracle.on_line(self.life, batches) else savepoint_id
        if rewind:
            self._choose(Choice(batches=batches, what=rewind))
        elif how == "savepoint" and self._is_from_elsewhere(batches):
            self._choose(Choice(batches=batches, what="import"))
        return FromSavepoint(
            savepoint_id=savepoint_id,
            rewind=rewind or "continue",  # type: ignore[arg-type]
            skip_known_batches=rewind == "re-emit" and self.world.sink == "foreachBatch",
            claim_mode="claim" if self.step.many else "no_claim",
        )

    def _is_from_elsewhere(self, batches: Mapping[str, Batch]) -> bool:
        """Return whether a savepoint is another root's: who names it begins a line with it."""
        return any(batch.life is not self.life for batch in batches.values()) and not (
            self.world.oracle.on_line(self.life, batches)
        )

    def _choose(self, choice: Choice, key: str | None = None) -> None:
        """Note what a person chooses, unless that was chosen before: it is used once."""
        known = self.life.choices.get(key or self.step.key)
        if known is None or (choice.batches and known.batches != choice.batches):
            self.life.choices[key or self.step.key] = choice

    def _latest(self, client: JobClient) -> str:
        newest = newest_summary(client.view.repository)
        return newest.savepoint_id if newest is not None else "sp-none"

    def _savepoint(self) -> str:
        ids = [one for one in self.life.savepoints if one not in self.life.disposed]
        return ids[self.step.which % len(ids)] if ids else "sp-none"

    def stop(self, client: JobClient) -> Any:  # noqa: ANN401
        """Stop the job."""
        done = client.requests.stop(self.step.key, savepoint=self.step.how != "plain", timeout_s=200)
        if isinstance(done, SavepointOnly):
            raise stop_incomplete(self.world.job, done)
        return done

    def take(self, client: JobClient) -> str:
        """Take a savepoint."""
        begun = client.requests.begin_savepoint(self.step.key, timeout_s=200)
        if isinstance(begun, PendingRequest):
            begun = client.requests.finish_savepoint(begun, timeout_s=200)
        return begun.savepoint_id

    def watch(self, client: JobClient) -> str:
        """Look after the job, and wait for a driver that is started again."""
        if (failed := failed_before(client.view, client.view.status())) is not None:
            raise client.drivers.driver_failed(failed)
        status = client.drivers.look_after(follow=client.starts.follow)
        if isinstance(status, Starting):
            client.drivers.wait_running(status.run.generation, timeout_s=60)
        return type(status).__name__

    # --- cutovers -----------------------------------------------------------------------------------

    def upgrade(self, client: JobClient) -> int:
        """Upgrade."""
        spec, target = recorded_launch(client.view)
        return int(
            Upgrade(
                client=client,
                journal=self.world.journal(self.step.root, self.step.key, UPGRADE_PHASES),
                spec=replace(spec, script=self.step.script),
                target=target,
                standby="none" if self.step.how == "none" else "warm",
                settings=SETTINGS,
            )
            .run()
            .generation
        )

    def rollback(self, client: JobClient) -> int:
        """Roll back."""
        savepoint_id = self._savepoint() if self.step.how else None
        if savepoint_id is not None:
            choice = Choice(batches=self.life.savepoints.get(savepoint_id, {}), what=self.step.how)
            self._choose(choice, f"{self.step.key}/new")
        return int(
            roll_back_to(
                client,
                self.world.journal(self.step.root, self.step.key, UPGRADE_PHASES),
                savepoint_id=savepoint_id,
                rewind=self.step.how or "continue",  # type: ignore[arg-type]
                skip_known_batches=self.step.how == "re-emit" and self.world.sink == "foreachBatch",
                restore_tables=False,
                standby="warm",
                rehearse=None,
                settings=SETTINGS,
            ).generation
        )

    def _cutover(self, client: JobClient) -> Cutover:
        spec, target = recorded_launch(client.view)
        return Cutover(
            client=client,
            journal=self.world.journal(self.step.root, self.step.key, PHASES),
            switch=self.world.switch(self.step.root),
            kafka=self.world.kafka,
            spec=replace(spec, overrides=self.world.spec("v1", new=True).overrides),
            target=target,
            hot_savepoint_id=None,
            settings=SETTINGS,
        )

    def migrate(self, client: JobClient) -> int:
        """Run the window."""
        return int(self._cutover(client).run().generation)

    def settle(self, client: JobClient) -> str:
        """Run a migration's last task."""
        return self._cutover(client).settle().where

    # --- savepoints ---------------------------------------------------------------------------------

    def prune(self, client: JobClient) -> Any:  # noqa: ANN401
        """Prune by limits."""
        policy = RetentionPolicy(max_count=self.step.many or None, max_age_s=self.step.seconds or None)
        return prune_job(
            client.view.board,
            client.view.repository,
            policy,
            holder=self.step.key,
            wait_s=100,
            signer=client.view.signer,
            open_checkpoint=self.world.open_shared,
        )

    def pin(self, client: JobClient) -> str:
        """Pin one."""
        savepoint_id = self._savepoint()
        pin(client.view.repository, savepoint_id, reason="keep", by=self.step.key, at_ms=1)
        self.life.pinned.add(savepoint_id)
        return savepoint_id

    def unpin(self, client: JobClient) -> str:
        """Unpin one."""
        savepoint_id = self._savepoint()
        self.life.pinned.discard(savepoint_id)
        unpin(client.view.repository, savepoint_id)
        return savepoint_id

    def verify(self, client: JobClient) -> str:
        """Check one."""
        savepoint_id = self._savepoint()
        check_savepoint(client.view.repository, savepoint_id, level="quick", by=self.step.key)
        return savepoint_id

    def dispose(self, client: JobClient) -> str:
        """Dispose of one by name, if nothing protects it."""
        savepoint_id = self._savepoint()
        dispose_of(client.view.board, client.view.repository, savepoint_id, holder=self.step.key, wait_s=100)
        self.life.disposed.add(savepoint_id)
        return savepoint_id

    def import_(self, client: JobClient) -> str:
        """Copy a savepoint of the other root here."""
        other = "r2" if self.step.root == "r1" else "r1"
        theirs = list(self.world.lives[other].savepoints)
        if not theirs:
            return "none"
        savepoint_id = theirs[self.step.which % len(theirs)]
        folder = Place(RootStore("export", self.world.machine), "export")
        source = self.world.client(other, self.step.host).view.repository
        export_savepoint(source, savepoint_id, folder)
        import_savepoint(folder, client.view.repository)
        return savepoint_id


def _import(self: Asker, client: JobClient) -> str:
    return self.import_(client)


setattr(Asker, "import", _import)
