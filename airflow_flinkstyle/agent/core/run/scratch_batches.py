"""A bounded number of batches of a query's own plan, on its scratch copy, into a sink that writes nothing."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core.errors import REHEARSAL_TIMEOUT
from airflow_flinkstyle.agent.core.run import scratch
from airflow_flinkstyle.agent.core.run.barrier import check_batch, plan_batch, read_held
from airflow_flinkstyle.agent.core.run.same_batches import as_planned
from airflow_flinkstyle.checkpoint import state_columns
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.rehearsal_records import RehearsedQuery
from airflow_flinkstyle.python_versions import moment_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.run.barrier import HeldQuery
    from airflow_flinkstyle.agent.core.run.driver import Driver
    from airflow_flinkstyle.agent.core.run.same_batches import Capture
    from airflow_flinkstyle.agent.core.spark import SparkQuery
    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.protocol.rehearsal_records import Rehearse, StateSchema

_POLL_MS = 50
_NEWER_S = 3.0
"""How long Kafka may have nothing newer than the savepoint before older records are taken."""
_QUIET_S = 10.0
"""How long other sources may have nothing to read before the rehearsal continues without records."""
_STOP_S = 5.0
_REPLAYED = (
    "Its sources had no records after the savepoint: it has read the last ones before it once more, which "
    "its state has already, and which its watermark may leave out."
)
_NOTHING = "Its sources had no records to read, before the savepoint or after it."
_NOTHING_AFTER = "Its sources had no records after the savepoint."


@dataclass(slots=True)
class _Progress:
    """Spark's progress of the batches, summed up."""

    rows: int = 0
    seconds: list[float] = field(default_factory=list)
    watermark_ms: int | None = None

    def add(self, progress: Mapping[str, Any]) -> None:
        self.rows += max(0, progress["numInputRows"])
        self.seconds.append(progress["durationMs"].get("triggerExecution", 0) / 1000)
        watermark = (progress.get("eventTime") or {}).get("watermark")  # Spark 3.5 leaves out what is empty
        if watermark:
            self.watermark_ms = int(moment_of(watermark).timestamp() * 1000)


class ScratchBatches:
    """The batches of one query; every wait ends with the time-out or with the run."""

    def __init__(
        self,
        driver: Driver,
        copy: JobQuery,
        asked: Rehearse,
        until_s: float,
        capture: Capture | None = None,
    ) -> None:
        """Describe them.

        Args:
            driver: This process.
            copy: The query, at its copy.
            asked: How much.
            until_s: When the time-out is over, by the monotonic clock.
            capture: In a comparison: keeps the rows, and knows the batches of the other drivers.
        """
        self._driver, self._copy, self._asked, self._until_s = driver, copy, asked, until_s
        self._capture = capture
        self._progress = _Progress()

    def run(self) -> RehearsedQuery:
        """Run them; raises Spark's error if a batch fails."""
        before, begun = self._columns(), self._committed()
        reads_kafka = any(source.is_kafka for source in self._copy.sources)
        if self._capture is None:
            untested = self._chosen() if reads_kafka else self._as_they_come()
        elif not reads_kafka:  # the batches of other sources cannot be run twice
            untested = ()
        else:
            untested = self._followed(self._capture) if self._capture.follows else self._chosen()
        replayed = bool(self._progress.rows) and untested == (_REPLAYED,)
        after = self._columns()
        schema: StateSchema = "changed" if after != before else "unchanged" if after else "none"
        return RehearsedQuery(
            batches=self._committed() - begun,
            input_rows=self._progress.rows,
            seconds=tuple(self._progress.seconds),
            state_schema=schema,
            state_changes=tuple(state_columns.difference(before, after)),
            watermark_ms=self._progress.watermark_ms,
            untested=untested,
            replayed=replayed,
        )

    # --- Kafka: the agent chooses each batch's end ----------------------------------------------

    def _chosen(self) -> tuple[str, ...]:
        """Run batches whose ends are chosen.

        On a quiet topic nothing follows the savepoint, or only marks of transactions: then the last records
        before it are read again. If there are none either, a batch without records shows whether Spark
        accepts the state.
        """
        if self._has_read(patient=True):
            return ()
        if self._asked.elsewhere:  # these were the newest records, of which the state knows nothing
            return self._without_records()
        scratch.step_back(self._driver.describe, self._copy, self._asked.records * self._asked.batches)
        if self._has_read(patient=False):
            return (_REPLAYED,)
        return self._without_records()

    def _followed(self, capture: Capture) -> tuple[str, ...]:
        """Run the batches that another driver has chosen, as it does."""
        while (batch := capture.next_batch(self._committed() + 1, self._require_time)) is not None:
            number, planned = as_planned(self._copy, batch)
            self._run_batch(number + 1, planned)
        return ()

    def _without_records(self) -> tuple[str, ...]:
        held = read_held(self._driver.describe, self._copy)
        self._run_planned(
            held,
            held.log.planned_next(
                watermark_ms=max(held.log.watermark_ms, held.next_watermark_ms),
                timestamp_ms=max(held.log.timestamp_ms, now_ms()),
            ),
        )
        return (_NOTHING,)

    def _has_read(self, *, patient: bool) -> bool:
        """Run the batches that were asked for, as far as there are records; return whether there were any."""
        asked = self._asked
        sizes = [asked.records] * asked.batches if self._capture is None else self._capture.sizes(asked)
        for number, records in enumerate(sizes):
            held, planned = self._next_batch(records, patient=patient and number == 0)
            if planned is None:
                break
            self._run_planned(held, planned)
        return self._progress.rows > 0

    def _run_planned(self, held: HeldQuery, planned: OffsetLog) -> None:
        if self._capture is not None:
            self._capture.note(held.batch_id + 1, held.log, planned)
        self._run_batch(held.batch_id + 1, planned)

    def _run_batch(self, number: int, planned: OffsetLog) -> None:
        self._copy.checkpoint.write(f"offsets/{number}", planned.render().encode())
        handle = self._start(once=True)
        self._await_end(handle)
        self._progress.add(handle.progress()[-1])

    def _next_batch(self, records: int, *, patient: bool) -> tuple[HeldQuery, OffsetLog | None]:
        """Return where the copy is, and its next batch; None if there is nothing to read."""
        quiet_until_s = time.monotonic() + (_NEWER_S if patient else 0)
        while True:
            held = read_held(self._driver.describe, self._copy)
            planned = plan_batch(held, held.step(held.ends(), records))
            if planned is not None or time.monotonic() > quiet_until_s:
                check_batch(self._copy, held, planned)
                return held, planned
            self._require_time()
            time.sleep(_POLL_MS / 1000)

    # --- other sources: their own limits count --------------------------------------------------

    def _as_they_come(self) -> tuple[str, ...]:
        """Let the query plan its batches itself, and stop it after enough of them."""
        begun, quiet_until_s = self._committed(), time.monotonic() + _QUIET_S
        handle = self._start(once=False)
        while self._committed() - begun < self._asked.batches:
            self._require_time()
            planned = max(list_batches(self._copy.checkpoint, "offsets"), default=-1)
            if planned <= begun and time.monotonic() > quiet_until_s:
                break
            if handle.await_end(_POLL_MS):  # raises its failure
                break
        self._stop(handle)
        # If it ran on without its copy it would fail, and end a wait of the script after the takeover.
        while handle.has_thread:
            self._require_time()
            time.sleep(_POLL_MS / 1000)
        for progress in handle.progress():
            if progress["batchId"] > begun and progress["durationMs"].get("addBatch") is not None:
                self._progress.add(progress)
        return () if self._progress.rows else (_NOTHING_AFTER,)

    # --- Spark ----------------------------------------------------------------------------------

    def _start(self, *, once: bool) -> SparkQuery:
        copy = self._copy
        rows = self._capture.rows if self._capture is not None else None
        return copy.start.try_out(
            f"rehearsal-{copy.name}", copy.location, copy.output_mode, once=once, rows=rows
        )

    def _await_end(self, handle: SparkQuery) -> None:
        try:
            while not handle.await_end(_POLL_MS):
                self._require_time()
        except BaseException:
            self._stop(handle)
            raise

    def _stop(self, handle: SparkQuery) -> None:
        """Stop a query; one that does not end is left to the end of this process."""
        stopping = threading.Thread(target=handle.stop, name="flinkstyle-rehearsed", daemon=True)
        stopping.start()
        stopping.join(_STOP_S)

    def _require_time(self) -> None:
        self._driver.leave_if_ending()
        if time.monotonic() > self._until_s:
            raise REHEARSAL_TIMEOUT.error(query=self._copy.name, timeout_s=self._asked.timeout_s)

    def _committed(self) -> int:
        return max(list_batches(self._copy.checkpoint, "commits"), default=-1)

    def _columns(self) -> dict[str, state_columns.Columns]:
        """Return the columns of the state, by store."""
        store = self._copy.checkpoint
        return state_columns.read_columns({info.key for info in store.list("state/")}, store.read)
