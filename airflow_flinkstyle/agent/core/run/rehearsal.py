"""Rehearsal: while a driver waits, its queries run on scratch copies of the hot savepoint, and write nothing.

The plan is the script's own, started through Spark's sink ``noop``, which computes every row. A copy has a
query id of its own and a folder beside the checkpoint; it is removed afterwards, and after a crash by the
driver that takes the job over next. No checkpoint, consumer group, control topic or output of the job is
written.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.board.patience import patiently
from airflow_flinkstyle.agent.core.errors import REHEARSAL_FAILED
from airflow_flinkstyle.agent.core.guards import checks, compat
from airflow_flinkstyle.agent.core.run import scratch
from airflow_flinkstyle.agent.core.run.comparison import (
    DriverVersion,
    compare,
    compare_job,
    require_no_obstacle,
    with_refused_state,
    with_state,
)
from airflow_flinkstyle.agent.core.run.reasons import Failure
from airflow_flinkstyle.agent.core.run.same_batches import ComparisonPart
from airflow_flinkstyle.agent.core.run.scratch_batches import ScratchBatches
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.rehearsal_records import Rehearsal, RehearsedQuery

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.run.comparison import StateWritten
    from airflow_flinkstyle.agent.core.run.driver import Driver
    from airflow_flinkstyle.agent.core.run.same_batches import Capture
    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
    from airflow_flinkstyle.savepoint.manifest import Manifest

_ELSEWHERE = "Positions: it read the newest records of the cluster that it will read."
_SINK_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSinkEvolution"
_CLEANS = "cleanSource"
_FUNCTIONS = {"foreach", "foreachBatch"}
log = logging.getLogger(__name__)


class RehearsalRun:
    """The rehearsals of one driver's queries, and the record of their results."""

    def __init__(
        self, driver: Driver, manifest: Manifest, asked: Rehearse, written: StateWritten | None = None
    ) -> None:
        """Rehearse on a savepoint.

        Args:
            driver: This process; it has not taken the job over.
            manifest: The hot savepoint.
            asked: How much, and within which time.
            written: How its state was rewritten; None if it is as it was taken.
        """
        self._driver, self._manifest, self._asked = driver, manifest, asked
        self._begun_s = time.monotonic()
        self._found: dict[str, RehearsedQuery] = {}
        self.failure: Failure | None = None
        """Why it failed; the run ends, and nothing else may be recorded."""
        follows = driver.driver_run.claim.follows
        before = driver.board.heartbeat(follows) if follows is not None else None
        self._before = before.value if before is not None else None
        self._compared = compare_job(manifest, DriverVersion(spark=driver.spark_version), self._before)
        if written is not None:
            self._compared.append(written.compared())
        self._part: ComparisonPart | None = None
        """This driver's part in a comparison of two versions; set at the first query, if there is one."""

    def missing(self) -> list[str]:
        """Return the queries of the savepoint without a result: neither rehearsed nor left out."""
        return [query.name for query in self._manifest.queries if query.name not in self._found]

    def try_out(self, query: JobQuery) -> None:
        """Rehearse a query that the script starts.

        Raises:
            FlinkstyleError: ``REHEARSAL_FAILED`` if it failed, with the script's own error; that is recorded.
        """
        savepoint_id = self._manifest.savepoint_id
        log.info("Rehearsing query %s on savepoint %s", query.name, savepoint_id)
        snapshot, spark = self._manifest.query(query.name), query.session
        given = spark.given(snapshot.pinned_confs if snapshot is not None else ())
        compared = compare(query, self._manifest, given, self._before, elsewhere=self._asked.elsewhere)
        try:
            compat.require_for_savepoint(spark, self._manifest, query.name)
            require_no_obstacle(query.name, compared)
            rehearsed = self._run(query)
        except Exception as error:  # whatever fails here would have failed after the takeover
            self._compared += with_refused_state(compared, error)
            raise self.failed(query.name, error) from error
        self._found[query.name] = rehearsed
        self._compared += with_state(compared, rehearsed)

    def _run(self, query: JobQuery) -> RehearsedQuery:
        driver, manifest = self._driver, self._manifest
        until_s = self._begun_s + self._asked.timeout_s
        if not self._found:
            self._part = ComparisonPart.of(driver, manifest)
        if (why := _not_rehearsed(manifest, query)) is not None:
            return _untested(why)
        if self._part is None:
            with scratch.own_scratch(driver) as location:
                return _on_copy(driver, manifest, query, self._asked, until_s, location)
        capture = self._part.capture(query)
        found = _on_copy(driver, manifest, query, self._asked, until_s, self._part.copies, capture)
        capture.end(found)
        return found

    def conclude(self) -> None:
        """Compare what two versions have computed, if that was asked for, and record the results.

        Raises:
            FlinkstyleError: ``REHEARSAL_FAILED`` if that failed; it is recorded.
        """
        if self._part is not None:
            try:
                self._part.compare(self._found)
            except Exception as error:
                raise self.failed(", ".join(sorted(self._found)), error) from error
        self.write()

    def leave_out(self, query: str, why: str) -> None:
        """Note a query that is not rehearsed; a drill restores its files all the same."""
        drills = self._asked.only and self._part is None
        found = _restored(self._driver, self._manifest, query) if drills else RehearsedQuery()
        self._found[query] = replace(found, untested=(f"Not rehearsed: {why}.",))

    def failed(self, query: str, error: BaseException) -> FlinkstyleError:
        """Record a query's failure; returns the error that ends the run."""
        log.error("The rehearsal of query %s failed", query, exc_info=error)
        self.failure = failure = Failure.of(error)
        self._found |= {name: _untested("the rehearsal had failed before") for name in self.missing()}
        self.write()
        return REHEARSAL_FAILED.error(
            query=query, savepoint_id=self._manifest.savepoint_id, text=failure.text
        )

    def write(self) -> None:
        """Record the results."""
        failure = self.failure
        rehearsal = Rehearsal(
            incarnation=self._driver.driver_run.incarnation,
            savepoint_id=self._manifest.savepoint_id,
            queries=self._found,
            not_tested=tuple(
                name
                for name, found in sorted(self._found.items())
                if not found.input_rows and self._manifest.query(name) is not None
            ),
            failure=(failure.code, failure.text) if failure is not None else None,
            compared=tuple(self._compared),
            seconds=time.monotonic() - self._begun_s,
            ended_at_ms=now_ms(),
        )
        board, run = self._driver.board, self._driver.driver_run
        patiently(
            lambda: board.write_rehearsal(run.generation, rehearsal), for_s=run.claim.lease_s, clock=run.clock
        )
        log.info("%s", rehearsal.summary())


def _not_rehearsed(manifest: Manifest, query: JobQuery) -> str | None:
    """Return why a query can have no copy that runs; None if it can."""
    if manifest.query(query.name) is None:
        return f"savepoint {manifest.savepoint_id} does not hold it"
    if query.session.setting(_SINK_EVOLUTION, "false").lower() == "true":
        return "its sink may have a name (sink evolution), under which no other sink may write"
    if query.schema_logs:
        return "it follows the schema of a table, whose log is in its checkpoint"
    if any((source.option(_CLEANS) or "off").lower() != "off" for source in query.sources):
        return f"its source removes files that it has read ({_CLEANS}) and the job still needs"
    return None


def _on_copy(
    driver: Driver,
    manifest: Manifest,
    query: JobQuery,
    asked: Rehearse,
    until_s: float,
    location: str,
    capture: Capture | None = None,
) -> RehearsedQuery:
    """Run a query on a copy at a location."""
    begun_s = time.monotonic()
    checkpoint, place = scratch.restore(
        driver.queries.spark, location, manifest, query.name, driver.repository
    )
    restore_s = time.monotonic() - begun_s
    copy = replace(query, checkpoint=checkpoint, location=place, query=None, identities={})
    if asked.elsewhere:
        scratch.read_newest(driver.describe, copy, asked.records * asked.batches)
    expected = {} if asked.elsewhere else checks.identities_of(manifest)[query.name]
    checks.guard(driver.describe, copy, expected)
    with query.session.without_listeners():
        found = ScratchBatches(driver, copy, asked, until_s, capture).run()
    _forget_end(driver, query)
    sink = query.sink.name
    not_run = f"The function of its {sink}." if sink in _FUNCTIONS else f"Its sink {sink}."
    untested = (*found.untested, not_run, *([_ELSEWHERE] if asked.elsewhere else []))
    return replace(found, restore_s=restore_s, untested=untested)


def _forget_end(driver: Driver, query: JobQuery) -> None:
    """Hide the end of the agent's query from the script's waits; each session has a manager of its own."""
    query.session.forget_ends()
    driver.held.count += 1  # for a wait that is under way


def _restored(driver: Driver, manifest: Manifest, name: str) -> RehearsedQuery:
    """Restore the copy of a query that is not run, so that its files are known to be whole."""
    with scratch.own_scratch(driver) as location:
        begun_s = time.monotonic()
        scratch.restore(driver.queries.spark, location, manifest, name, driver.repository)
        taken_s = time.monotonic() - begun_s
    return RehearsedQuery(restore_s=taken_s)


def _untested(why: str) -> RehearsedQuery:
    return RehearsedQuery(untested=(f"Not rehearsed: {why}.",))
