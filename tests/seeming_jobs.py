"""Savepoints of real checkpoints, and jobs that seem to run on another machine."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.query_records import QueryStatus
from airflow_flinkstyle.protocol.records import Claim, Current, Heartbeat, IncarnationRecord, TakeoverOrder
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.savepoint.blobs.references import Reference, of_generation, write_reference
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import BatchId, Generation, Incarnation
from tests import hearts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.protocol.comparison_records import Comparison
    from airflow_flinkstyle.protocol.line import Turn
    from airflow_flinkstyle.protocol.query_records import CommittedGroup, Pace
    from airflow_flinkstyle.protocol.records import AgentState
    from airflow_flinkstyle.savepoint.manifest import Manifest

GOLDEN = Path(__file__).parent / "golden"
TAKEN_AT_MS = 1_780_000_000_000


@dataclass
class SeemingJob:
    """A job below a savepoint root in a folder."""

    folder: Path
    job: str = "orders"
    begun_at_ms: int = TAKEN_AT_MS
    host: str = "elsewhere"
    claim_key: str = "test"

    @property
    def uri(self) -> str:
        return str(self.folder / "root")

    @property
    def repository(self) -> SavepointRepository:
        return SavepointRepository(LocalStore(self.folder / "root"), self.job)

    @property
    def board(self) -> JobBoard:
        return JobBoard(LocalStore(self.folder / "root"), self.job)

    def take(self, savepoint_id: str, golden: str, *, minute: int = 0, query: str = "totals") -> Manifest:
        """Take a savepoint of a checkpoint that Spark wrote."""
        source = QuerySource(name=query, checkpoint=LocalStore(GOLDEN / golden), kafka={})
        label = SavepointLabel(
            savepoint_id=savepoint_id,
            taken_at_ms=self.begun_at_ms + minute * 60_000,
            spark_version=golden.partition("/")[0],
            taken_from_generation=1,
        )
        return take_savepoint(self.repository, [source], label)

    def seem_closed(self, golden: str) -> None:
        """Leave the checkpoint and the records of a driver that has closed."""
        shutil.copytree(GOLDEN / golden, self.folder / "checkpoints" / "totals")
        query_id = json.loads((GOLDEN / golden / "metadata").read_bytes())["id"]
        self.seem_running(state="closed", query_id=query_id)

    def seem_compared(self, generation: int, found: Comparison) -> None:
        """Leave the records of a driver that has compared two versions and closed; ``generation`` is its."""
        number = Generation(generation)
        claim = Claim(
            claim_key=f"{self.claim_key}/compare-1/new",
            follows=Generation(1),
            checkpoint_location=str(self.folder / f"checkpoints{generation}"),
            prepare_savepoint_id=found.savepoint_id,
            overrides=(),
            lease_s=30.0,
            launch={},
            claimed_at_ms=self.begun_at_ms,
            rehearse=Rehearse(only=True),
        )
        self.board.create_claim(number, claim)
        self.board.write_comparison(number, found)
        closed = Heartbeat(
            incarnation=found.incarnation, state="closed", beat=1, written_at_ms=found.ended_at_ms,
            spark_version="4.2.0", application_id="app", queries={},
        )  # fmt: skip
        self.board.beat(number, closed, seen=None)

    def seem_running(
        self,
        *,
        state: AgentState = "running",
        query_id: str = "q-1",
        groups: Mapping[str, CommittedGroup] | None = None,
        lease_s: float = 30.0,
        beats: bool = True,
        failed: bool = False,
        pace: Pace | None = None,
        error: tuple[str, str] | None = None,
        generation: int = 1,
        from_savepoint: str | None = None,
        asked_by: Mapping[str, str] | None = None,
        ui_url: str | None = None,
        drivers: int = 1,
        claimed_after_min: int | None = None,
        said_after_min: int | None = None,
        turns: tuple[Turn, ...] = (),
    ) -> None:
        """Leave the records of a driver that runs on another machine and answers nothing.

        Args:
            state: What it said last.
            query_id: Of its only query, ``totals``.
            groups: What was committed back.
            lease_s: Its lease.
            beats: Whether it writes heartbeats until the test has ended.
            failed: Whether an error has ended the query.
            pace: What Spark says of the query.
            error: Why it failed.
            generation: Which run it is; the ones before are there.
            from_savepoint: Where it began.
            asked_by: The task that started it.
            ui_url: Of Spark's UI.
            drivers: How many drivers the run has had.
            claimed_after_min: When it was claimed; None: a minute after the run before.
            said_after_min: When its last word was; None: as it was claimed.
            turns: Where its line bends.
        """
        number, newest = Generation(generation), Incarnation(drivers)
        minutes = generation - 1 if claimed_after_min is None else claimed_after_min
        claimed_at_ms = self.begun_at_ms + minutes * 60_000
        said_at_ms = claimed_at_ms if said_after_min is None else self.begun_at_ms + said_after_min * 60_000
        claim = Claim(
            claim_key=self.claim_key,
            follows=Generation(generation - 1) if generation > 1 else None,
            checkpoint_location=str(self.folder / f"checkpoints{'' if generation == 1 else generation}"),
            prepare_savepoint_id=None,
            overrides=(),
            lease_s=lease_s,
            launch={},
            claimed_at_ms=claimed_at_ms,
            asked_by=asked_by or {},
        )
        self.board.create_claim(number, claim)
        order = TakeoverOrder(
            savepoint_id=from_savepoint,
            closed_at=None,
            expected={},
            parent=BEGINNING,
            turns=turns,
        )
        self.board.create_takeover_order(number, order)
        if from_savepoint is not None:
            held = Reference(
                need="start",
                by=claim.claim_key,
                reason="",
                at_ms=1,
                generation=number,
                claim_id=claim.claim_id,
            )
            write_reference(self.repository, from_savepoint, of_generation(number), held)
        for driver in range(1, drivers + 1):
            process = IncarnationRecord(
                host=self.host,
                pid=1,
                jvm_pid=1,
                pid_started="",
                started_at_ms=claimed_at_ms + (driver - 1) * 60_000,
            )
            self.board.create_incarnation(number, Incarnation(driver), process)
        self.board.take_current(Current(generation=number, incarnation=newest), seen=self.board.current())
        totals = QueryStatus(
            query_id=query_id,
            batch_id=BatchId(4),
            batch_committed_at_ms=self.begun_at_ms,
            sources={},
            groups=groups or {},
            failed=failed,
            pace=pace,
        )
        heartbeat = Heartbeat(
            incarnation=newest,
            state=state,
            beat=1,
            written_at_ms=said_at_ms,
            error=error,
            spark_version="4.2.0",
            application_id="app",
            queries={"totals": totals},
            ui_url=ui_url,
        )
        if beats and state not in ("closed", "failed"):
            hearts.begin(self.board, number, heartbeat)
        else:
            self.board.beat(number, heartbeat, seen=None)
