"""Rehearsal: while a driver waits, its query runs on a scratch copy of the hot savepoint, and writes nothing.

The plan is the script's own, started through Spark's sink ``noop``, which computes every row. The copy has a
query id of its own and a folder beside the checkpoint; it is removed afterwards, and after a crash by the
driver that takes the job over next. No checkpoint, consumer group, control topic or output of the job is
written.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.errors import RehearsalError
from airflow_flinkstyle.agent.guards import checks
from airflow_flinkstyle.agent.run import scratch
from airflow_flinkstyle.agent.run.comparison import compare, with_state
from airflow_flinkstyle.agent.run.reasons import Failure
from airflow_flinkstyle.agent.run.scratch_batches import ScratchBatches
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.rehearsal_records import Rehearsal, RehearsedQuery

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.job_query import JobQuery
    from airflow_flinkstyle.agent.run.driver import Driver
    from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
    from airflow_flinkstyle.savepoint.manifest import Manifest

_ELSEWHERE = "Positions: it read the newest records of the cluster that it will read."
_FUNCTIONS = {"foreach", "foreachBatch"}
log = logging.getLogger(__name__)


def rehearse(driver: Driver, manifest: Manifest, query: JobQuery, asked: Rehearse) -> None:
    """Rehearse the query that the script starts first, and record what came of it.

    Args:
        driver: This process; it has not taken the job over.
        manifest: The hot savepoint.
        query: Its writer is the script's.
        asked: How much.

    Raises:
        RehearsalError: If it failed, with the script's own error.
    """
    log.info("Rehearsing query %s on savepoint %s", query.name, manifest.savepoint_id)
    begun_s, failure = time.monotonic(), None
    found = {other.name: _untested("the script starts it after another one") for other in manifest.queries}
    try:
        if asked.only:
            found |= {name: _restored(driver, manifest, name) for name in found if name != query.name}
        found[query.name] = _one(driver, manifest, query, asked)
    except Exception as error:  # whatever fails here would have failed after the takeover
        log.exception("The rehearsal of query %s failed", query.name)
        failure = Failure.of(error)
    compared = compare(query, manifest, driver.spark_version, elsewhere=asked.elsewhere)
    rehearsal = Rehearsal(
        incarnation=driver.driver_run.incarnation,
        savepoint_id=manifest.savepoint_id,
        queries=found,
        failure=(failure.code, failure.text) if failure is not None else None,
        compared=with_state(compared, found.get(query.name)),
        seconds=time.monotonic() - begun_s,
        ended_at_ms=now_ms(),
    )
    driver.board.write_rehearsal(driver.driver_run.generation, rehearsal)
    log.info("%s", rehearsal.summary())
    if failure is not None:
        raise RehearsalError.of(query.name, manifest.savepoint_id, failure.text)


def _one(driver: Driver, manifest: Manifest, query: JobQuery, asked: Rehearse) -> RehearsedQuery:
    if manifest.query(query.name) is None:
        return _untested(f"savepoint {manifest.savepoint_id} does not hold it")
    if query.schema_logs:
        return _untested("it follows the schema of a table, whose log is in its checkpoint")
    spark, location = driver.queries.spark, scratch.location_of(driver.driver_run.claim.checkpoint_location)
    scratch.remove(spark, location)  # what an earlier driver of this generation has left
    try:
        begun_s = time.monotonic()
        checkpoint, place = scratch.restore(spark, location, manifest, query.name, driver.repository)
        restore_s = time.monotonic() - begun_s
        copy = replace(query, checkpoint=checkpoint, location=place, query=None, identities={})
        if asked.elsewhere:
            scratch.read_newest(driver.describe, copy, asked.records * asked.batches)
        expected = {} if asked.elsewhere else checks.identities_of(manifest)[query.name]
        checks.guard(driver.describe, copy, expected)
        found = ScratchBatches(driver, copy, asked).run()
    finally:
        with suppress(Exception):  # the next driver removes it
            scratch.remove(spark, location)
    spark.streams._jsqm.resetTerminated()  # noqa: SLF001  # else the script's wait ends for a query of ours
    sink = query.sink.name
    left_out = f"The function of its {sink}." if sink in _FUNCTIONS else f"Its sink {sink}."
    untested = (*found.untested, left_out, *([_ELSEWHERE] if asked.elsewhere else []))
    return replace(found, restore_s=restore_s, untested=untested)


def _restored(driver: Driver, manifest: Manifest, name: str) -> RehearsedQuery:
    """Restore the copy of a query that the script starts later, so that its files are known to be whole."""
    spark, location = driver.queries.spark, scratch.location_of(driver.driver_run.claim.checkpoint_location)
    scratch.remove(spark, location)
    begun_s = time.monotonic()
    try:
        scratch.restore(spark, location, manifest, name, driver.repository)
        taken_s = time.monotonic() - begun_s
    finally:
        with suppress(Exception):  # the next driver removes it
            scratch.remove(spark, location)
    return RehearsedQuery(restore_s=taken_s, untested=("It was restored only: the script starts it later.",))


def _untested(why: str) -> RehearsedQuery:
    return RehearsedQuery(untested=(f"Not rehearsed: {why}.",))
