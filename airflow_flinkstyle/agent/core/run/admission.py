"""How the queries of a job may start: the first one waits until this process has taken the job over."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.agent.core.board import takeover
from airflow_flinkstyle.agent.core.board.patience import patiently
from airflow_flinkstyle.agent.core.board.takeover import HeldWatch
from airflow_flinkstyle.agent.core.guards import (
    checks,
    compat,
    lineages,
    own_checkpoint,
    sinks,
    tables,
    waiting,
)
from airflow_flinkstyle.agent.core.run import repartition, scratch
from airflow_flinkstyle.agent.core.run.comparison import StateWritten
from airflow_flinkstyle.agent.core.run.reasons import Drilled
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.places import own_place, require_marked
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.run.driver import Driver
    from airflow_flinkstyle.protocol.query_records import SourceIdentity
    from airflow_flinkstyle.protocol.records import Heartbeat, TakeoverOrder
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

_CHECK_EVERY_S = 1.0
GUARD_PATIENCE_S = 600.0
"""How long a relaunch waits for brokers, or a store, that cannot be reached before it fails for now."""
FIRST_PATIENCE_S = 60.0
"""The same for a generation's first driver: a person, or a migration's window, waits for the answer."""
T = TypeVar("T")
log = logging.getLogger(__name__)


class Admission:
    """Takes the job over once, from a savepoint or a checkpoint, and guards the start of every query."""

    def __init__(self, driver: Driver) -> None:
        self._driver, self._driver_run = driver, driver.driver_run
        self._board, self._repository = driver.board, driver.repository
        self._queries, self._heartbeat_writer = driver.queries, driver.heartbeat_writer
        self.manifest: Manifest | None = None
        """The newest savepoint of this lineage: restored here, or taken here."""
        self.taken_over = False
        seen = self._driver_run.seen
        self.relaunched = seen is not None and seen.value.generation == self._driver_run.generation
        self.starting = False
        """The job was taken over for a query that Spark has not started yet."""
        self._taking = False
        self._tables = tables.Tables(driver.board, driver.repository, driver.driver_run)
        self._place_id = ""
        """Of the checkpoint location, once it is marked as this job's."""
        self._prepared: Manifest | None = None
        """The hot savepoint that was copied to the checkpoint."""
        self.state_written: StateWritten | None = None
        """How the hot savepoint's state was rewritten; None if the session does not ask for that."""
        self._named = driver.driver_run.claim.prepare_savepoint_id
        """The newest hot savepoint that the caller has named, copied or not."""
        self._lock = threading.Lock()
        self._order: TakeoverOrder  # once the takeover has begun
        self._received_order: TakeoverOrder | None = None
        """The same, from when it is read; nothing is restored by it yet."""
        self._before_order_s: float | None = None
        """When the last read began that found no order; None if the first read found it."""
        self._expected: checks.Expected = {}
        self._before: Heartbeat | None = None
        """The last heartbeat of the run that this one follows."""
        self._to_continue: set[str] = set()
        self._dropped: set[str] = set()

    def admit(self, query: JobQuery) -> None:
        """Check a query; returns once Spark may start it."""
        with self._lock:
            self._driver.leave_if_ending()
            if self.taken_over:
                self._guard(query)
                query.admitted = True  # from then on heartbeats name the query
                if query.ran is None:  # a relaunch must know which query the name stands for before it runs
                    self._patiently(self._heartbeat_writer.beat)
            else:
                self._take_over(query)
            self._tables.restore(query)
            self._patiently(lambda: checks.clear(query))

    def check_early(self, query: JobQuery) -> None:
        """Refuse a query that would leave a checkpoint behind, while the earlier run still runs.

        Only once the script has named all queries of the run that it follows: otherwise the guard decides.
        """
        claim = self._driver_run.claim
        if self.taken_over or self.relaunched or claim.is_drill or claim.follows is None:
            return
        before = self._followed()
        known = set(before.queries) if before is not None else set()
        if known and known <= self._queries.names() and not self._has_order():
            self._require_none_left(query, known)

    def _has_order(self) -> bool:
        return self._patiently(lambda: self._board.takeover_order(self._driver_run.generation)) is not None

    def await_order(self) -> None:
        """Show that this driver waits, and return once it has its takeover order."""
        with self._lock:
            if not self.taken_over:
                self._stand_by()

    def is_settled(self) -> bool:
        """Return whether a request can be judged now.

        False in a takeover, before that of a relaunch, and until the first query has started: until then a
        savepoint would be refused although the checkpoint has batches.
        """
        return not (self._taking or self.starting) and (self.taken_over or not self.relaunched)

    def _take_over(self, first: JobQuery) -> None:
        """Wait for the order, restore, guard, and take ``current.json``: the protocol's sequence."""
        driver_run, board = self._driver_run, self._board
        if driver_run.claim.is_drill:
            self._driver.begin_end(Drilled())
            self._driver.leave_if_ending()
        self._own_place()  # before the job may be stopped for this driver
        if (hot := self.to_prepare()) is not None:
            self.prepare(hot, first)
        self._order = order = self._stand_by()
        held = self._held(order)
        seen = driver_run.seen if self.relaunched else board.current()
        takeover.require_may_take_over(seen, driver_run.generation, driver_run.claim)
        if seen is not None and seen.value.generation == driver_run.generation:
            held = None  # this generation has taken the job over already
            self._continue_checkpoint(order)
        else:
            takeover.require_predecessor(board, driver_run, order, self._require_turn)
            takeover.require_not_left(board, driver_run, order)
            self._restore(order, first)
        continued = driver_run.last_heartbeat if self.relaunched else self._adopted()
        self._patiently(lambda: checks.require_there(self._queries.checkpoint, continued))
        self._before = self._followed()
        self._dropped = waiting.dropped_queries(self._queries.spark)
        known = checks.queries_to_continue(
            self._queries.checkpoint, order, self.manifest, driver_run.last_heartbeat
        )
        self._to_continue = known - self._dropped
        self._guard(first)
        self._tables.obey(order)
        self._tables.require_possible(first)
        not_started = self._waiting_queries()
        statuses = {first.name: first.status(), **{query.name: query.status for query in not_started}}
        self._heartbeat_writer.require_writable(statuses)
        self._await_held(held)
        with self._driver.gate:
            self._driver.leave_if_ending()
            self._taking = True
            try:
                self._patiently(lambda: takeover.take_current(board, driver_run, seen, self._place_id))
                self.taken_over = self.starting = self._driver.schema_logs.is_ours = True
                self._queries.take_over(first, not_started)
                self._heartbeat_writer.drop(self._dropped)
                self._patiently(lambda: self._heartbeat_writer.beat("running"))
            finally:
                self._taking = False
        threading.Thread(target=self._remove_leftovers, name="flinkstyle-scratch", daemon=True).start()

    def _remove_leftovers(self) -> None:
        spark, driver_run = self._queries.spark, self._driver_run
        scratch.remove_leftovers(spark, self._board, driver_run)
        scratch.free_old(spark, self._board, self._repository, driver_run)

    def to_prepare(self) -> Manifest | None:
        """Return the hot savepoint that this driver restores while it waits; None for none."""
        savepoint_id = self._driver_run.claim.prepare_savepoint_id
        if savepoint_id is None or self.relaunched or self._prepared is not None:
            return None
        if self._board.takeover_order(self._driver_run.generation) is not None:
            return None
        saved, begun_s = self._repository.read(savepoint_id), self._driver_run.clock.now_s
        found = repartition.as_asked(self._driver, saved)
        if found is not saved:
            self.state_written = StateWritten(
                before=savepoint_id, now=found.savepoint_id, seconds=self._driver_run.clock.now_s - begun_s
            )
        return found

    def prepare(self, hot: Manifest, first: JobQuery) -> None:
        """Copy a hot savepoint while waiting, so that the window has little to copy."""
        compat.require_for_savepoint(first.session, hot, first.name)
        self._own_place()
        restore(hot, self._repository, self._queries.checkpoint, complete=False)
        self._prepared = hot

    def _own_place(self) -> None:
        """Mark the checkpoint location as this job's, or check its mark, before it is read or written."""
        if self._place_id:
            return
        generation, queries, seen = self._driver_run.generation, self._queries, self._driver_run.seen
        if self.relaunched or self._adopted() is not None:
            ran_in = seen.value.place_id if seen is not None else ""
            self._patiently(lambda: require_marked(queries.place(), self._board, ran_in))
        self._place_id = self._patiently(lambda: own_place(queries.place(), self._board, generation))

    def _stand_by(self) -> TakeoverOrder:
        if self._received_order is None:
            self._patiently(lambda: self._heartbeat_writer.beat("standby"))
            self._received_order = self._wait_for_order()
        return self._received_order

    def _wait_for_order(self) -> TakeoverOrder:
        log.info("Waiting for the takeover order")
        clock, looked_s = self._driver_run.clock, 0.0
        begun_s = asked_s = clock.now_s
        while (
            order := self._patiently(lambda: takeover.signed_order(self._board, self._driver_run))
        ) is None:
            if clock.now_s - looked_s > _CHECK_EVERY_S:
                looked_s = clock.now_s
                self._require_turn()
                self._precopy()
            self._driver.leave_if_ending()
            prompt = clock.now_s - begun_s < takeover.PROMPT_S
            clock.sleep(takeover.GO_POLL_S if prompt else takeover.LATER_POLL_S)
            self._before_order_s, asked_s = asked_s, clock.now_s
        return order

    def _await_held(self, held: HeldWatch | None) -> None:
        """Wait until the producers are certain to be held, if the order requires it."""
        while held is not None and not self._patiently(held.is_held):
            self._require_turn()
            self._driver_run.clock.sleep(takeover.GO_POLL_S)

    def _held(self, order: TakeoverOrder) -> HeldWatch | None:
        """Begin to watch the hold that an order names, before anything takes time."""
        if order.while_held is None:
            return None
        clock = self._driver_run.clock
        watch = HeldWatch(self._board, order.while_held, before_order_s=self._before_order_s, clock=clock)
        self._patiently(watch.is_held)
        return watch

    def _precopy(self) -> None:
        """Copy what is new in a newer hot savepoint, if the caller names one, then report that."""
        named = self._patiently(lambda: self._board.precopy(self._driver_run.generation))
        if named is None or named.savepoint_id == self._named:
            return
        before, self._named = self._named, named.savepoint_id
        if self._prepared is not None and self._prepared.savepoint_id == before:  # else: in other partitions
            self._copy_newer(self._prepared, named.savepoint_id)
        self._heartbeat_writer.precopied(named.savepoint_id)
        self._patiently(lambda: self._heartbeat_writer.beat("standby"))

    def _copy_newer(self, prepared: Manifest, savepoint_id: str) -> None:
        self._prepared = None  # if this fails, the restore compares every file
        try:
            newer = self._patiently(lambda: self._repository.read(savepoint_id))
            place = self._queries.checkpoint
            restore(newer, self._repository, place, complete=False, precopied=prepared)
        except FlinkstyleError as error:
            log.warning("Savepoint %s was not copied ahead: %s", savepoint_id, error)
        else:
            self._prepared = newer

    def _require_turn(self) -> None:
        """Leave if the run ends, or if another generation took the job over."""
        self._driver.leave_if_ending()
        current = self._patiently(self._board.current)
        takeover.require_may_take_over(current, self._driver_run.generation, self._driver_run.claim)

    def _patiently(self, read: Callable[[], T], *, for_s: float | None = None) -> T:
        for_s = self._driver_run.claim.lease_s if for_s is None else for_s
        return patiently(read, for_s=for_s, clock=self._driver_run.clock)

    def _restore(self, order: TakeoverOrder, first: JobQuery) -> None:
        if order.savepoint_id is not None:
            saved = self._repository.read(order.savepoint_id)
            self.manifest = repartition.as_asked(self._driver, saved)
            compat.require_for_savepoint(first.session, self.manifest, first.name)
            if order.rewind == "fork":
                newest = sinks.newest_batch(self._queries.spark, first.sink)
                self.manifest = sinks.counted_on(self.manifest, first, newest, order)
            restore(
                self.manifest,
                self._repository,
                self._queries.checkpoint,
                complete=True,
                precopied=self._prepared,
            )
        self._expected = expected_identities(order, self.manifest, None)

    def _continue_checkpoint(self, order: TakeoverOrder) -> None:
        """Continue from this generation's own newest checkpoint; the savepoint is not restored again."""
        self.relaunched = True
        checks.require_not_refused(self._driver_run.last_heartbeat)
        # A claimed savepoint may have been disposed of since.
        self.manifest = self._repository.find(order.savepoint_id) if order.savepoint_id else None
        self._expected = expected_identities(order, self.manifest, self._driver_run.last_heartbeat)

    def _followed(self) -> Heartbeat | None:
        follows = self._driver_run.claim.follows
        slot = self._patiently(lambda: self._board.heartbeat(follows)) if follows is not None else None
        return slot.value if slot else None

    def _waiting_queries(self) -> list[waiting.WaitingQuery]:
        """Return where the queries are that this run continues."""
        last = self._driver_run.last_heartbeat
        known, origins = waiting.recorded(last, self.manifest, self._before), self._origins()
        return waiting.read_checkpoints(self._to_continue, self._queries.checkpoint, known, last, origins)

    def _origins(self) -> dict[str, lineages.Origin]:
        return lineages.origins(self._order, self.manifest, self._before, self._driver_run.generation)

    def _adopted(self) -> Heartbeat | None:
        """Return the last heartbeat of the run whose checkpoint is adopted; None if this run has its own."""
        claim = self._driver_run.claim
        follows = claim.follows
        followed = self._patiently(lambda: self._board.claim(follows)) if follows is not None else None
        same = followed is not None and followed.checkpoint_location == claim.checkpoint_location
        return self._followed() if same else None

    def _guard(self, query: JobQuery) -> None:
        checks.require_not_dropped(query, self._dropped)
        checks.require_known(query, self._to_continue, self._queries.names())
        self._require_none_left(query, self._to_continue | self._ever_reported())
        newest = sinks.newest_batch(self._queries.spark, query.sink)
        self.manifest = sinks.admit(query, newest, self._order, self.manifest, self._repository)
        compat.require_for_checkpoint(query.session, query.name, query.checkpoint)
        self._driver.schema_logs.require_same(query)
        last = (
            self._driver_run.last_heartbeat.queries.get(query.name)
            if self._driver_run.last_heartbeat
            else None
        )
        if last is not None and not query.lost:
            query.lost = last.lost
        # With the savepoint's numbers as this query's sink needs them.
        lineages.expect(query, self._origins().get(query.name), last)
        self._await_kafka(
            lambda: checks.guard(self._driver.describe, query, self._expected.get(query.name, {}))
        )

    def _ever_reported(self) -> set[str]:
        """Return the queries of earlier runs' and incarnations' heartbeats: they begin anew by choice."""
        heartbeats = (self._before, self._driver_run.last_heartbeat)
        return {name for last in heartbeats if last is not None for name in last.queries}

    def _require_none_left(self, query: JobQuery, known: Collection[str]) -> None:
        """Refuse a query that is new to the job and has run in plain Spark."""
        if query.name in known or query.own_location_checked or query.checkpoint.head("metadata") is not None:
            return
        own_checkpoint.require_none(
            query,
            job=self._board.job,
            left_behind=self._driver_run.claim.leave_checkpoints,
            ran=[one.name for one in self._queries.all()],
            elsewhere=self._driver_run.claim.elsewhere,
        )
        query.own_location_checked = True

    def _await_kafka(self, guard: Callable[[], None]) -> None:
        """Guard a query once the brokers answer: that they do not for a while is no refusal."""

        def attempt() -> None:
            self._driver.leave_if_ending()  # a stop may come meanwhile
            guard()

        self._patiently(attempt, for_s=GUARD_PATIENCE_S if self.relaunched else FIRST_PATIENCE_S)


def expected_identities(
    order: TakeoverOrder, manifest: Manifest | None, prior: Heartbeat | None
) -> checks.Expected:
    """Collect what a source must read: by the caller, by the savepoint, by an earlier incarnation."""
    expected: checks.Expected = {}

    def add(query: str, source: str, identity: SourceIdentity) -> None:
        expected.setdefault(query, {}).setdefault(source, []).append(identity)

    for query, sources in order.expected.items():
        for source, identity in sources.items():
            add(query, source, identity)
    for query, recorded in (checks.identities_of(manifest) if manifest else {}).items():
        for source, identities in recorded.items():
            for identity in identities:
                add(query, source, identity)
    for query, status in prior.queries.items() if prior else ():
        for source, identity in status.sources.items():
            add(query, source, identity)
    return expected


def restore(
    manifest: Manifest,
    repository: SavepointRepository,
    open_checkpoint: checks.OpenCheckpoint,
    *,
    complete: bool,
    precopied: Manifest | None = None,
) -> None:
    """Restore every query of a savepoint to its checkpoint; files that are there stay."""
    restored = restore_savepoint(
        manifest,
        repository,
        open_checkpoint,
        complete=complete,
        precopied=precopied,
    )
    for name, done in restored.items():
        log.info(
            "Savepoint %s, query %s: %d files written, %d kept%s",
            manifest.savepoint_id,
            name,
            done.files_written,
            done.files_kept,
            "" if complete else " (prepared)",
        )
