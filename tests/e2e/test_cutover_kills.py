"""kill -9 of a driver at each phase of upgrades and migrations: of the one that runs, and of the next one.

A short selection runs with the tests; ``make kills`` runs all.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from airflow_flinkstyle.jobs.errors import MIGRATION_ENDED, ROLLED_BACK, UPGRADE_ROLLED_BACK, JobError
from airflow_flinkstyle.jobs.migration.cutover import PHASES
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from testbed.waiting import PATIENCE_S, wait_until
from tests.e2e.journal_store import JournalStore
from tests.e2e.upgrades import SCRIPTS, upgrade

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.cutover.context import CutoverContext
    from airflow_flinkstyle.types import Generation
    from testbed.judge import StateReader
    from testbed.scenario import OrdersScenario

pytestmark = pytest.mark.e2e
ALL = os.environ.get("FLINKSTYLE_KILLS") == "all"
IN_REHEARSAL = "in its rehearsal"
Victim = Literal["old", "next"]
Kill = tuple[Victim, str]


def kills(phases: tuple[str, ...]) -> list[Kill]:
    """Return every kill that can be: the old driver has closed once it has stopped, the next one comes up in
    its phase.
    """
    ordered = [phase for phase in phases if phase not in ("rollback", "observe")]
    old = ordered[: ordered.index("stop") + 1]
    after = ordered[ordered.index("standby") + 1 :]
    return [
        *(("old", f"{phase} intent") for phase in old),
        ("next", IN_REHEARSAL),
        *(("next", f"{phase} {point}") for phase in after for point in ("intent", "unrecorded")),
    ]


OF_UPGRADES: list[Kill] = kills(UPGRADE_PHASES) if ALL else [("old", "stop intent"), ("next", IN_REHEARSAL)]
OF_MIGRATIONS: list[Kill] = kills(PHASES) if ALL else [("next", "takeover-order result")]


@dataclass
class Killer:
    """Kills one driver of a cutover, once."""

    scenario: OrdersScenario
    cutover: CutoverContext
    victim: Victim
    point: str
    old: Generation
    killed: list[Generation] = field(default_factory=list)

    def install(self) -> None:
        """Be told of the journal's writes, and watch for a rehearsal."""
        store = JournalStore(self.scenario.folder / "store")
        store.told = lambda point: self.kill() if point == self.point else None
        self.cutover.journal._store = store
        if self.point == IN_REHEARSAL:
            threading.Thread(target=self._kill_in_rehearsal, daemon=True).start()

    def kill(self) -> None:
        """``kill -9`` the victim."""
        generation = self.old if self.victim == "old" else self.cutover.new
        if generation is None or self.killed:
            return
        self.killed.append(generation)
        self.scenario.client.drivers.end_driver(generation)

    def _kill_in_rehearsal(self) -> None:
        def copied() -> bool:
            new = self.cutover.new
            claim = self.scenario.board.claim(new) if new is not None else None
            folder = Path(f"{claim.checkpoint_location}.rehearsal") if claim is not None else None
            return folder is not None and folder.exists()

        wait_until("the next driver rehearses", copied)
        self.kill()


def run(killer: Killer) -> bool:
    """Run the cutover with its kill; True if it went through, False if the job runs on where it was."""
    killer.install()
    try:
        killer.cutover.run()  # type: ignore[attr-defined]
    except JobError as error:
        if error.code not in {kind.code for kind in (UPGRADE_ROLLED_BACK, ROLLED_BACK, MIGRATION_ENDED)}:
            raise
        return False
    finally:
        assert killer.killed, f"{killer.victim} was not killed {killer.point}"
    return True


@pytest.mark.nightly
def test_an_upgrade_goes_through_or_back_whichever_driver_is_killed(
    scenario: OrdersScenario, reader: StateReader
):
    """One job that is upgraded again and again, judged order by order at the end."""
    scenario.start_producer()
    scenario.start()
    versions = [Path(scenario.spec.script), SCRIPTS / "orders_job_v2.py"]
    went_through = []
    for number, (victim, point) in enumerate(OF_UPGRADES):
        before = scenario.running().run
        script = next(path for path in versions if str(path) != before.claim.launch["spec"]["script"])
        cutover = upgrade(scenario, script.stem, rehearse=Rehearse(batches=1, records=500))
        cutover.journal = cutover.journal.part(f"kill-{number}")
        cutover.spec = replace(cutover.spec, script=str(script))
        done = run(Killer(scenario, cutover, victim, point, before.generation))
        scenario.client.drivers.wait_running(current(scenario), timeout_s=PATIENCE_S)
        runs = scenario.running().run.claim.launch["spec"]["script"]
        assert runs == (str(script) if done else before.claim.launch["spec"]["script"]), (victim, point)
        scenario.wait_commits(2)
        went_through.append((victim, point, done))
    assert [kill for *kill, done in went_through if not done] == [["next", IN_REHEARSAL]]
    judgement = scenario.judge(reader, scenario.old)
    assert judgement.right, judgement


def current(scenario: OrdersScenario) -> Generation:
    slot = scenario.board.current()
    assert slot is not None
    return slot.value.generation


@pytest.mark.nightly
@pytest.mark.parametrize(("victim", "point"), OF_MIGRATIONS, ids=[" ".join(kill) for kill in OF_MIGRATIONS])
def test_a_migration_goes_through_or_back_whichever_driver_is_killed(
    scenario: OrdersScenario, reader: StateReader, victim: Victim, point: str
):
    scenario.start_producer()
    old = scenario.start()
    rehearse = Rehearse(batches=1, records=500, elsewhere=True)
    cutover = scenario.cutover(hot=scenario.hot_savepoint(), rehearse=rehearse)
    done = run(Killer(scenario, cutover, victim, point, old))
    assert done == (point != IN_REHEARSAL)
    if not done:
        scenario.client.drivers.wait_running(current(scenario), timeout_s=PATIENCE_S)
        assert scenario.cutover(migration_id="m2", hot=scenario.hot_savepoint(key="again")).run()
    wait_until("orders go to new", lambda: scenario.producer_is_at() == "new")
    scenario.wait_commits(2)
    judgement = scenario.judge(reader, scenario.new)
    assert judgement.right, judgement
