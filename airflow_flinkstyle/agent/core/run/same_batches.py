"""One driver's part in a comparison: it runs the batches that all drivers run, and keeps their rows.

The driver of the old version chooses each batch and notes it before it runs it: the offset logs of where the
batch begins and of its end. The others run batches with the same ends and times, while that driver still
runs. All is kept in the scratch place of each driver's generation, until the last of them has compared it.

    <place>/copies/<query>   its checkpoint     <place>/rows/<query>   its rows, batch by batch
    <place>/plan/<query>/    the batches        <place>/plan/<query>/end   after the last one
"""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.agent.core.errors import COMPARED_RUN
from airflow_flinkstyle.agent.core.queries.registry import as_spark_writes
from airflow_flinkstyle.agent.core.run import scratch
from airflow_flinkstyle.agent.core.spark import RunOfQuery, RunsToCompare
from airflow_flinkstyle.checkpoint import commit_log, offset_log
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.comparison_records import COMPARE, Compare, ComparedQuery, Comparison
from airflow_flinkstyle.protocol.places import MARK_KEY, is_own, own_place
from airflow_flinkstyle.storage.keys import below

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.run.driver import Driver
    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.protocol.rehearsal_records import Rehearse, RehearsedQuery
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import Generation

COPIES: Final = "copies"
_END: Final = "end"
_POLL_S: Final = 0.2
_BY_KAFKA_ONLY = "Only queries that read Kafka are compared: the batches of others cannot be run twice."
_NEW = "The savepoint does not hold it: the new version begins it anew."
_NOT_RUN = "The old version has not run it."
_NOTHING = "There were no records to read, so nothing was compared."
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """A batch that every driver of a comparison runs."""

    begin: OffsetLog
    """Of the batch before it: where it begins."""
    end: OffsetLog


def _planned(noted: bytes) -> PlannedBatch:
    """Read what ``Capture.note`` wrote."""
    logs = json.loads(noted)
    return PlannedBatch(begin=offset_log.parse(logs["begin"]), end=offset_log.parse(logs["end"]))


class Capture:
    """What one query of this driver keeps, and the batches that it is to run."""

    def __init__(self, part: ComparisonPart, query: str) -> None:
        self._part, self._query = part, query
        self.rows = as_spark_writes(part.folder("rows", query))
        """Where its rows go."""
        self.follows = part.asked.old is not None
        """Whether another driver chooses the batches."""

    def note(self, number: int, begin: OffsetLog, end: OffsetLog) -> None:
        """Note a batch for the other drivers, before it runs."""
        if not self.follows:
            text = json.dumps({"begin": begin.render(), "end": end.render()})
            self._part.plan(self._query).write(str(number), text.encode())

    def sizes(self, asked: Rehearse) -> list[int]:
        """Return how many records each batch may read, for the driver that chooses them."""
        return list(self._part.asked.sizes) or [asked.records] * asked.batches

    def end(self, ran: RehearsedQuery) -> None:
        """Note for the other drivers that there is no further batch, and what the query has read."""
        if not self.follows:
            summary = {"input_rows": ran.input_rows, "replayed": ran.replayed, "untested": ran.untested}
            self._part.plan(self._query).write(_END, json.dumps(summary).encode())

    def next_batch(self, number: int, check: Callable[[], None]) -> PlannedBatch | None:
        """Wait until the old version's driver notes a batch; returns None if it ends before this number.

        Raises:
            FlinkstyleError: ``COMPARED_RUN`` if that driver has failed.
        """
        plan = self._part.plan(self._query, self._part.asked.old)
        while True:
            end = plan.get(_END)  # before the batch: none is noted after the end
            found = plan.get(str(number))
            if found is not None:
                return _planned(found.data)
            if end is not None or self._part.other_has_ended():
                return None
            check()
            time.sleep(_POLL_S)


class ComparisonPart:
    """This driver's part, if its session's settings give it one."""

    def __init__(self, driver: Driver, manifest: Manifest, asked: Compare) -> None:
        """Mark the scratch place as its own, and remove the files of the generation's earlier drivers."""
        self._driver, self._manifest, self.asked = driver, manifest, asked
        run = driver.driver_run
        self.place = scratch.location_of(run.claim.checkpoint_location)
        spark = driver.queries.spark
        if asked.old is None:
            scratch.remove_leftovers(spark, driver.board, run)
        own_place(spark.open(self.place), driver.board, run.generation)
        spark.clear(self.place, but=MARK_KEY)
        self._ran: dict[str, JobQuery] = {}

    @staticmethod
    def of(driver: Driver, manifest: Manifest) -> ComparisonPart | None:
        """Return this driver's part; None for one that only rehearses, or drills."""
        asked = Compare.of_setting(driver.queries.spark.setting(COMPARE))
        if asked is None or not driver.driver_run.claim.is_drill:
            return None
        return ComparisonPart(driver, manifest, asked)

    @property
    def copies(self) -> str:
        """Where the copies of the queries go."""
        return below(self.place, COPIES)

    def capture(self, query: JobQuery) -> Capture:
        """Return what keeps the rows of a query."""
        self._ran[query.name] = query
        return Capture(self, query.name)

    def plan(self, query: str, generation: Generation | None = None) -> ObjectStore:
        """Return the store at the batches of a query, as one of the drivers noted them."""
        return self._driver.queries.spark.open(self.folder("plan", query, generation))

    def folder(self, what: str, query: str, generation: Generation | None = None) -> str:
        """Return where one of the drivers keeps something of a query; None for this one."""
        place = self.place if generation is None else self._place_of(generation)
        return below(below(place, what), query)

    def other_has_ended(self) -> bool:
        """Return whether the driver which chooses the batches has ended, in order.

        Raises:
            FlinkstyleError: ``COMPARED_RUN`` if it has failed.
        """
        old = self.asked.old
        last = self._driver.board.heartbeat(old) if old is not None else None
        if old is not None and last is not None and last.value.state == "failed":
            reason = last.value.error[1] if last.value.error else "it has recorded no reason"
            raise COMPARED_RUN.error(generation=old, reason=reason)
        return last is not None and last.value.state == "closed"

    def compare(self, ran: Mapping[str, RehearsedQuery]) -> None:
        """Compare what was kept, if this driver is to; record the result, and remove what is needed no more.

        Args:
            ran: The result of each query here.
        """
        old, run = self.asked.old, self._driver.driver_run
        if old is None:
            return
        begun_s = time.monotonic()
        new = self.asked.new or run.generation
        again = run.generation if self.asked.part == "again" else None
        names = {*ran, *(query.name for query in self._manifest.queries)}
        queries = {name: self._compared(name, ran.get(name), new, again) for name in sorted(names)}
        found = Comparison(
            incarnation=run.incarnation,
            savepoint_id=self._manifest.savepoint_id,
            old=old,
            new=new,
            again=again,
            queries=queries,
            seconds=time.monotonic() - begun_s,
            ended_at_ms=now_ms(),
        )
        self._driver.board.write_comparison(run.generation, found)
        log.info("%s", found.summary())
        if not found.asks_for_another_run:
            self._remove(old, new, run.generation)

    def _compared(
        self, name: str, ran: RehearsedQuery | None, new: Generation, again: Generation | None
    ) -> ComparedQuery:
        snapshot, query, old = self._manifest.query(name), self._ran.get(name), self.asked.old
        assert old is not None  # noqa: S101  # for mypy
        if snapshot is None:
            return ComparedQuery(not_comparable=_NEW)
        if query is None or ran is None:
            why = " ".join(ran.untested) if ran is not None else ""
            return ComparedQuery(not_comparable=why or "The script has not started it.")
        end = self.plan(name, old).get(_END)
        summary = json.loads(end.data) if end is not None else None
        if not any(source.is_kafka for source in query.sources):
            return ComparedQuery(not_comparable=_BY_KAFKA_ONLY)
        if summary is None:
            return ComparedQuery(not_comparable=_NOT_RUN)
        counts: dict[str, Any] = {
            "batches": ran.batches,
            "input_rows": int(summary["input_rows"]),
            "replayed": bool(summary["replayed"]),
        }
        if not summary["input_rows"]:
            return ComparedQuery(not_comparable=_NOTHING, **counts)
        runs = RunsToCompare(
            query=snapshot,
            savepoint_id=self._manifest.savepoint_id,
            output_mode=query.output_mode,
            asked=self.asked,
            old=self._run(old, name),
            new=self._run(new, name),
            again=self._run(again, name) if again is not None else None,
        )
        return self._with_offsets(replace(query.session.compare(runs), **counts), query, old)

    def _with_offsets(self, found: ComparedQuery, query: JobQuery, old: Generation) -> ComparedQuery:
        """Add where the first batch that differs begins and ends, as the old version's driver noted it."""
        noted = (
            self.plan(query.name, old).get(str(found.first_batch)) if found.first_batch is not None else None
        )
        if noted is None:
            return found
        batch = _planned(noted.data)
        keys = [source.key(batch.end.version) for source in query.sources if source.is_kafka]
        begin = {key: batch.begin.kafka_offsets(key) for key in keys}
        return replace(found, first_from=begin, first_to={key: batch.end.kafka_offsets(key) for key in keys})

    def _run(self, generation: Generation, name: str) -> RunOfQuery:
        copy = self.folder(COPIES, name, generation)
        store = self._driver.queries.spark.open(copy)
        newest = max(list_batches(store, "commits"))
        commit = commit_log.parse(store.read(f"commits/{newest}").decode())
        return RunOfQuery(
            rows=as_spark_writes(self.folder("rows", name, generation)),
            copy=as_spark_writes(copy),
            is_format_2=bool(commit.state_unique_ids),
        )

    def _place_of(self, generation: Generation) -> str:
        claim = self._driver.board.claim(generation)
        if claim is None:
            raise COMPARED_RUN.error(generation=generation, reason="its claim is gone")
        return scratch.location_of(claim.checkpoint_location)

    def _remove(self, *generations: Generation) -> None:
        spark = self._driver.queries.spark
        for generation in set(generations):
            with suppress(Exception):  # the driver that takes the job over next removes it
                place = self._place_of(generation)
                if is_own(spark.open(place), self._driver.board):
                    spark.remove(place, last=MARK_KEY)


def as_planned(copy: JobQuery, batch: PlannedBatch) -> tuple[int, OffsetLog]:
    """Put a copy where a batch begins; returns its newest batch and the log of that next one.

    Times are those of the other driver, so that ``current_timestamp`` is the same; the watermark is its own.
    """
    number = max(list_batches(copy.checkpoint, "commits"))
    log_before = offset_log.parse(copy.checkpoint.read(f"offsets/{number}").decode())
    commit = commit_log.parse(copy.checkpoint.read(f"commits/{number}").decode())
    begin = _moved(copy, log_before, batch.begin)
    if begin != log_before:
        copy.checkpoint.write(f"offsets/{number}", begin.render().encode())
    planned = begin.planned_next(
        watermark_ms=max(begin.watermark_ms, commit.next_watermark_ms), timestamp_ms=batch.end.timestamp_ms
    )
    return number, _moved(copy, planned, batch.end)


def _moved(copy: JobQuery, mine: OffsetLog, theirs: OffsetLog) -> OffsetLog:
    """Return a log with the positions of another driver's; their versions may name sources differently."""
    for source in copy.sources:
        there = source.key(theirs.version)
        here = source.key(mine.version)
        known = source.is_kafka and there in theirs.sources
        # Not by its text: Spark's checksum beside the file is of its own.
        if known and mine.kafka_offsets(here) != theirs.kafka_offsets(there):
            mine = mine.with_kafka_offsets(here, theirs.kafka_offsets(there))
    return mine
