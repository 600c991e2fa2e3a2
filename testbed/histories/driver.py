"""The agent's side of the protocol, on queries that only count: what Spark does is two log files a batch.

Claim, heartbeat, lease, requests, guards and the words of a failure are the agent's own code. Its runtime
does not run here: it waits in six threads some twenty times a second, where a driver of a history does one
thing every three. Done one by one its start (2.4 ms) and its beats (0.45 ms, here 0.2 ms with the batch)
would still make a history of 30 ms one of 60 ms, so the order of a takeover (``run.admission``) is told
again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import uuid
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core.board import takeover
from airflow_flinkstyle.agent.core.board.heartbeat import HeartbeatWriter
from airflow_flinkstyle.agent.core.board.inbox import Inbox
from airflow_flinkstyle.agent.core.board.patience import patiently
from airflow_flinkstyle.agent.core.board.takeover import HeldWatch
from airflow_flinkstyle.agent.core.errors import NOT_CLAIMED, SupersededError
from airflow_flinkstyle.agent.core.guards import checks, lineages, waiting
from airflow_flinkstyle.agent.core.run.reasons import Failure
from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.places import own_place, require_marked
from airflow_flinkstyle.protocol.query_records import QueryStatus, Sinks, SourceIdentity, left_by
from airflow_flinkstyle.protocol.records import IncarnationRecord
from airflow_flinkstyle.protocol.signatures import ORDER_KEYS_VARIABLE
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.errors import SavepointDamagedError, SavepointMissingError, SinkSkipsError
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.errors import (
    ObjectChangedError,
    ObjectExistsError,
    StoreDeniedError,
    StoreUnavailableError,
)
from airflow_flinkstyle.types import Generation, NextOffset
from testbed.histories.machine import EPOCH_S, DeadError, Process
from testbed.histories.troubles import QueryError

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.board.inbox import Take
    from airflow_flinkstyle.jobs.deployments.base import Submission
    from airflow_flinkstyle.protocol.records import Heartbeat, Request, TakeoverOrder
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.storage.base import ObjectStore
    from testbed.histories.oracle import Batch
    from testbed.histories.world import World

TOPIC, SOURCE = "orders", "0"
_UNTOLD_PATIENCE_S = 20.0
log = logging.getLogger(__name__)


class LeaveError(Exception):
    """The driver ends, and has nothing to say."""


_AWAY = (StoreUnavailableError, StoreDeniedError)
"""Whatever a store refuses, a driver that runs tries it again until its lease is over."""
_ENDS = (
    *(LeaveError, takeover.NotOursError, SupersededError),
    *(ObjectChangedError, ObjectExistsError, *_AWAY),
)


class Driver(Process):
    """One driver process."""

    def __init__(self, world: World, root: str, host: str, pid: int, submission: Submission) -> None:
        argv = submission.argv
        self.generation = Generation(int(argv[argv.index("--generation") + 1]))
        super().__init__(f"driver {pid} of generation {self.generation} in {root}", host)
        self.world, self.root, self.pid, self.marker = world, root, pid, submission.marker
        self.store = world.roots[root]
        self.life = world.lives[root]
        self.submit = int(argv[argv.index("--submit") + 1])
        self.order_keys = tuple(submission.env[ORDER_KEYS_VARIABLE].split(","))
        self.board, self.repository = (
            JobBoard(self.store, world.job),
            SavepointRepository(self.store, world.job),
        )
        self.started: set[str] = set()
        self.has_it = self.committed = False
        self.dies_in: str | None = None
        """The query in whose next batch it is killed: the sink has it, the commit log has not."""
        self.logs: dict[str, tuple[int, int]] = {}
        self.ids: dict[str, str] = {}
        self.asked_s: dict[str, float] = {}
        self.ends: dict[str, tuple[Batch, int]] = {}
        self.taking: object = None
        """The take that is under way."""

    # --- its life -------------------------------------------------------------------------------

    def run(self) -> None:
        """Live, and say why it ended if it can."""
        try:
            self._begin()
            try:
                self._live()
            except SupersededError:
                raise
            except (FlinkstyleError, QueryError) as error:
                if isinstance(error, (SavepointMissingError, SavepointDamagedError)):
                    self.world.oracle.say("needed-gone", f"{self.name}: {error.problem}")
                failure = Failure.of((isinstance(error, QueryError) and error.__cause__) or error)
                self._last("failed", error=(failure.code, failure.text), transient=failure.transient)
        except _ENDS:
            log.debug("%s has ended", self.name)
        except FlinkstyleError as error:
            if error.code != NOT_CLAIMED.code:
                raise
            log.debug("%s has ended: nobody claimed its generation", self.name)
        self.alive = False

    def _begin(self) -> None:
        claim = patiently(lambda: self.board.claim(self.generation), for_s=_UNTOLD_PATIENCE_S)
        if claim is None:
            raise LeaveError
        record = IncarnationRecord(
            host=self.host, pid=self.pid, jvm_pid=self.pid, pid_started=self.host, started_at_ms=1
        )
        process: Any = SimpleNamespace(record=lambda: record)
        self.driver_run = takeover.begin(
            self.board, self.generation, process, submit=self.submit, order_keys=self.order_keys
        )
        self.claim, self.incarnation = self.driver_run.claim, self.driver_run.incarnation
        prior = self.driver_run.prior
        self.writer = HeartbeatWriter(
            self.board,
            self.generation,
            self.incarnation,
            lease_s=self.claim.lease_s,
            seen=prior.version if prior else None,
            queries=self._statuses,
            before=prior.value.queries if prior else {},
            has_committed=lambda: self.committed,
            committed_before=bool(prior and prior.value.has_committed),
            clock=self.driver_run.clock,
        )
        self.writer.spark_is_up(spark_version="4.2.0", application_id="app")
        self.inbox = Inbox(self.board, self.generation, self.incarnation, self)
        self.script = self.claim.launch["spec"]["script"]
        self.cluster = "new" if self.claim.overrides else "old"
        self.names = self.world.queries

    def _live(self) -> None:
        self.writer.beat("standby")
        dr, board = self.driver_run, self.board
        if "broken" in self.script:
            raise FlinkstyleError("The script raised.", "Nothing ran.", "Correct it.")
        relaunched = dr.seen is not None and dr.seen.value.generation == self.generation
        place = self.world.open(self.host, self.claim.checkpoint_location)
        if relaunched or self._adopted() is not None:
            require_marked(place, board, dr.seen.value.place_id if dr.seen is not None else "")
        place_id = own_place(place, board, self.generation)
        if self.claim.prepare_savepoint_id is not None and not relaunched and self._order() is None:
            self._restore(self.repository.read(self.claim.prepare_savepoint_id), complete=False)
        clock, before_order_s = self.driver_run.clock, None
        asked_s = clock.now_s
        while (order := self._order()) is None:
            self._wait()
            before_order_s, asked_s = asked_s, clock.now_s
        seen = dr.seen if relaunched else board.current()
        takeover.require_may_take_over(seen, self.generation, self.claim)
        manifest: Manifest | None = None
        if seen is not None and seen.value.generation == self.generation:
            manifest = self.repository.find(order.savepoint_id) if order.savepoint_id else None
            went_on_in = dr.last_heartbeat
        else:
            takeover.require_predecessor(board, dr, order, self._look)
            if order.savepoint_id is not None:
                manifest = self.repository.read(order.savepoint_id)
                self._restore(manifest, complete=True)
            went_on_in = self._adopted()
        checks.require_there(self.checkpoint, went_on_in)
        before = self._followed()
        known = checks.queries_to_continue(self.checkpoint, order, manifest, dr.last_heartbeat)
        self._guard(order, manifest)
        self.origins = lineages.origins(
            order, manifest, self._adopted() if not relaunched else before, self.generation
        )
        recorded = waiting.recorded(dr.last_heartbeat, manifest, before)
        self.waiting = {
            one.name: one
            for one in waiting.read_checkpoints(
                known, self.checkpoint, recorded, dr.last_heartbeat, self.origins
            )
        }
        if order.while_held is not None and (seen is None or seen.value.generation != self.generation):
            watch = HeldWatch(self.board, order.while_held, before_order_s=before_order_s, clock=clock)
            while not watch.is_held():
                self._wait()
        found = {name: self.newest(name) for name in self.names}  # before it: a call that fails tells nobody
        takeover.take_current(board, dr, seen, place_id)
        self.world.oracle.takes_over(self.life, self.claim.claim_key, self.name, found)
        self.has_it = True
        self.writer.beat("running")
        self._loop()

    def _order(self) -> TakeoverOrder | None:
        return takeover.signed_order(self.board, self.driver_run)

    def _adopted(self) -> Heartbeat | None:
        follows = self.claim.follows
        followed = self.board.claim(follows) if follows is not None else None
        same = followed is not None and followed.checkpoint_location == self.claim.checkpoint_location
        return self._followed() if same else None

    def _followed(self) -> Heartbeat | None:
        follows = self.claim.follows
        slot = self.board.heartbeat(follows) if follows is not None else None
        return slot.value if slot else None

    def _guard(self, order: TakeoverOrder, manifest: Manifest | None) -> None:
        """Judge sink and source as the agent does."""
        used_again = order.rewind == "re-emit" and self.world.sink == "delta"
        may_know = self.world.sink == "foreachBatch" and any(
            self._may_be_known(name, order, manifest) for name in self.names
        )
        if (used_again or may_know) and not order.skip_known_batches:
            raise SinkSkipsError.of(self.world.sink, state_after="No query was started.")
        for name in self.names:
            expected = order.expected.get(name, {}).get(SOURCE)
            if expected is not None and expected.cluster_id != self.cluster:
                raise FlinkstyleError(
                    f"Cluster {expected.cluster_id} was expected, found {self.cluster}.", "Nothing.", "Move."
                )

    def _may_be_known(self, name: str, order: TakeoverOrder, manifest: Manifest | None) -> bool:
        """Return whether a function may have seen the numbers that a query comes to.

        A fork has come with its number: the savepoint says that the sink is a function.
        """
        done, snapshot = self._logs(name)[0], manifest.query(name) if manifest is not None else None
        if name not in order.unused_from or done != (snapshot.batch_id if snapshot is not None else -1):
            return False
        number = order.unused_from[name]
        return number is None or done + 1 < number

    def _restore(self, manifest: Manifest, *, complete: bool) -> None:
        restore_savepoint(manifest, self.repository, self.checkpoint, complete=complete)

    # --- while it waits ---------------------------------------------------------------------------

    def _pause(self, seconds: float | None = None) -> None:
        self.world.machine.sleep(self.world.beat_s if seconds is None else seconds)

    def _wait(self) -> None:
        self._pause()
        self._look()

    def _look(self) -> None:
        """Look at what a driver looks at while it waits, and show that it lives."""
        takeover.require_may_take_over(self.board.current(), self.generation, self.claim)
        takeover.require_newest(self.board, self.generation, self.submit)
        self._obey()
        named = self.board.precopy(self.generation)
        if named is not None:
            self.writer.precopied(named.savepoint_id)
        if self.world.machine.now_s - self.writer.confirmed_at_s >= self.world.beat_s:
            self.writer.beat()

    # --- while it runs ----------------------------------------------------------------------------

    def _loop(self) -> None:
        """Run batches as long as the lease is confirmed; a store that is away for longer ends it."""
        late_until_s = self.world.machine.now_s + (self.world.late_s if "late" in self.script else 0)
        while True:
            try:
                self._confirm()
                self._start_queries(late_until_s)
                for name in sorted(self.started):
                    self._batch(name)
                self._obey()
            except _AWAY:
                pass
            self._pause()
            if self.writer.lease_is_lost():
                raise LeaveError

    def _confirm(self) -> None:
        """Show that it lives, if the job is still its own."""
        if not self.writer.is_current():
            raise LeaveError
        self.writer.beat()

    def _confirm_while(self, taking: object) -> None:
        """Confirm the lease beside a take, which may wait for a prune: the agent's is a thread of its own."""
        while True:
            self._pause()
            if self.taking is not taking:
                return
            with contextlib.suppress(*_AWAY):
                try:
                    self._confirm()
                except (LeaveError, SupersededError):
                    self.world.machine.kill(self)
            if self.writer.lease_is_lost():
                self.world.machine.kill(self)

    def _start_queries(self, late_until_s: float) -> None:
        for name in self.names:
            late = name != self.names[0] and self.world.machine.now_s < late_until_s
            if name not in self.started and not late:
                self.started.add(name)
                self.waiting.pop(name, None)
                checkpoint = self.checkpoint(name)
                if checkpoint.head("metadata") is None:
                    checkpoint.write("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())

    def checkpoint(self, name: str) -> ObjectStore:
        """Open a query's checkpoint as this driver's host reaches it."""
        return self.world.open(self.host, f"{self.claim.checkpoint_location}/{name}")

    def _logs(self, name: str) -> tuple[int, int]:
        """Return the newest committed and planned batch; read once: nobody else writes there."""
        known = self.logs.get(name) if self.has_it else None
        if known is None:
            done, planned = lineages.last_batches(self.checkpoint(name))
            known = self.logs[name] = (-1 if done is None else done), (-1 if planned is None else planned)
        return known

    def newest(self, name: str) -> Batch | None:
        """Return the batch that a query's checkpoint ends with."""
        done, _ = self._logs(name)
        return self._stamped(name, done)[0] if done >= 0 else None

    def _stamped(self, name: str, batch: int) -> tuple[Batch, int]:
        """Return which batch of the history an offset log is, and where it ends."""
        if self.has_it and batch == self._logs(name)[1] and name in self.ends:
            return self.ends[name]
        log = offset_log.parse(self.checkpoint(name).read(f"offsets/{batch}").decode())
        found = self.world.stamped(log), log.kafka_offsets(SOURCE)[TOPIC, 0]
        if self.has_it and batch == self._logs(name)[1]:
            self.ends[name] = found
        return found

    def _query_id(self, name: str) -> str:
        found = self.ids.get(name) or lineages.query_id_in(self.checkpoint(name)) or ""
        if self.has_it and found:
            self.ids[name] = found
        return found

    def _batch(self, name: str) -> None:
        """Plan a batch if none is, write it to the sink, commit it: any moment may be the last."""
        world, checkpoint = self.world, self.checkpoint(name)
        done, planned = self._logs(name)
        before, at = self._stamped(name, done) if done >= 0 else (None, world.kafka.base(self.cluster))
        world.troubles.come("source", f"read a batch of {name}")
        if planned <= done:
            end = world.kafka.end(self.cluster)
            if end <= at:
                return
            base = world.kafka.base(self.cluster)
            batch = world.oracle.plan(self.life, name, before, at - base, end - base)
            planned = done + 1
            checkpoint.write(f"offsets/{planned}", world.log_of(batch, end).encode())
            self.logs[name] = (done, planned)
            self.ends[name] = (batch, end)
        batch, end = self._stamped(name, planned)
        query_id = self._query_id(name)
        trouble = world.troubles.at("sink", f"write batch {planned} of {name}")
        if trouble is None or trouble[1]:
            world.oracle.write(self.life, batch, query_id, planned, self.name)
        if trouble is not None:
            raise trouble[0]
        if self.dies_in == name:
            world.machine.kill(self)
            raise DeadError
        world.machine.point()
        if self.writer.lease_is_lost():
            raise LeaveError
        checkpoint.write(f"commits/{planned}", b'v1\n{"nextBatchWatermarkMs":0}')
        self.logs[name] = (planned, planned)
        self.committed = True
        world.oracle.commit(self.life, batch, self.name)

    # --- what callers ask ---------------------------------------------------------------------------

    def _obey(self) -> None:
        with contextlib.suppress(*_AWAY):  # it is looked at again
            self.inbox.poll()

    def is_ready(self, request: Request) -> bool:
        """Return whether a request can be judged now."""
        return request.command == "stop" or not self.has_it or not self._must_wait(request)

    def refusal(self, request: Request) -> str | None:
        """Return why a request cannot be served; None if it can."""
        if request.command == "stop":
            return None
        if not self.has_it:
            return "There is nothing to save."
        fresh = any(self._logs(name)[0] < 0 for name in self.names)
        return "Expected at least one committed batch." if fresh else None

    def begin_take(self, take: Take) -> None:
        """Take a savepoint, or save and stop, before anything else is done."""
        self._serve(take.request)
        take.done.set()

    def begin_stop(self, request: Request) -> None:
        """Stop at once."""
        self._serve(request)

    def _must_wait(self, request: Request) -> bool:
        """Return whether it waits for a first batch, or for a query that is half done and not started."""
        if any(self._logs(name)[0] < 0 for name in self.names):
            return self.world.machine.now_s - self._asked_s(request) < 30
        half_done = [one for one in self.waiting.values() if one.is_half_done]
        if request.command != "stop_with_savepoint" or not half_done:
            return False
        return self.world.machine.now_s - self._asked_s(request) < float(request.hold_s)

    def _asked_s(self, request: Request) -> float:
        """Return when a request was first seen."""
        return self.asked_s.setdefault(request.request_id, self.world.machine.now_s)

    def _serve(self, request: Request) -> None:
        savepoint_id = None
        if request.command != "stop":
            self.taking = taking = object()
            self.world.machine.spawn(self, partial(self._confirm_while, taking))
            try:
                savepoint_id = self._take(request)
            except FlinkstyleError as error:
                said = f"{error.code}: {error}"
                with contextlib.suppress(*_AWAY):  # the inbox still has to write it
                    self.inbox.end(request, "failed", said, transient=error.retryable)
                return
            finally:
                self.taking = None
            if request.command == "savepoint":
                with contextlib.suppress(*_AWAY):
                    self.inbox.end(request, "done", "", savepoint_id=savepoint_id)
                return
        self._last("closed", request_id=request.request_id, savepoint_id=savepoint_id)
        with contextlib.suppress(*_AWAY):  # it has closed, whoever hears of it
            self.inbox.end(request, "done", "", savepoint_id=savepoint_id)
        raise LeaveError

    def _take(self, request: Request) -> str:
        world = self.world
        log = KafkaLog(
            cluster_id=self.cluster,
            topic_ids={TOPIC: f"{self.cluster}-id"},
            log_range={
                TOPIC: {
                    0: (
                        NextOffset(world.kafka.base(self.cluster)),
                        NextOffset(world.kafka.end(self.cluster)),
                    )
                }
            },
        )
        label = SavepointLabel(
            savepoint_id=str(request.savepoint_id),
            taken_at_ms=self._now_ms(),
            spark_version="4.2.0",
            taken_from_generation=self.generation,
        )
        sources = [
            QuerySource(
                name=name,
                checkpoint=self.checkpoint(name),
                kafka={SOURCE: log},
                sink=world.sink,
                sinks=self._status(name).sinks,
            )
            for name in self.names
        ]
        return take_savepoint(self.repository, sources, label).savepoint_id

    # --- heartbeats ---------------------------------------------------------------------------------

    def _status(self, name: str) -> QueryStatus:
        told = self.waiting.get(name)
        if told is not None:
            return told.status
        done, planned = self._logs(name)
        return QueryStatus(
            query_id=self._query_id(name),
            batch_id=None if done < 0 else done,  # type: ignore[arg-type]
            batch_committed_at_ms=self._now_ms(),
            sources={
                SOURCE: SourceIdentity(cluster_id=self.cluster, topic_ids={TOPIC: f"{self.cluster}-id"})
            },
            sink=self.world.sink,
            sinks=left_by(Sinks(), planned=planned > done),
        )

    def _now_ms(self) -> int:
        return int((EPOCH_S + self.world.machine.now_s + self.ahead_s) * 1000)

    def _statuses(self) -> dict[str, QueryStatus]:
        known = {name: self._status(name) for name in self.names} if self.has_it else {}
        return {name: beat for name, beat in known.items() if beat.query_id}

    def _last(self, state: Any, **last: Any) -> None:  # noqa: ANN401
        """Say the last word; a store that is away for a moment is asked again."""
        for _ in range(3):
            try:
                self.writer.end(state, **last)
            except _AWAY:
                self._pause()
            else:
                return
