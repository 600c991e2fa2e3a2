"""A job that runs a bounded range once more, beside the job whose savepoint it starts from, and then ends.

Each batch is planned here, as an aligned cut plans one, so that none reads past the end: Spark never plans
one by itself. To the script its queries seem to run, and it waits for them as for any.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from airflow_flinkstyle.agent.core.errors import (
    DROPPED,
    NOT_STARTED,
    REPLAY_OUTPUT,
    REPLAY_RANGE,
    REPLAY_SOURCE,
    leaving,
    query_name_taken,
)
from airflow_flinkstyle.agent.core.guards.checks import read_positions
from airflow_flinkstyle.agent.core.guards.waiting import dropped_queries
from airflow_flinkstyle.agent.core.run import barrier
from airflow_flinkstyle.agent.core.run.reasons import Replayed
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.replay_records import REPLAY, Replay, ReplayRange
from airflow_flinkstyle.savepoint.sinks import FILE_SINKS, WRITE_NOWHERE
from airflow_flinkstyle.sinks.resume import is_lineage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.agent.core.job_query import JobQuery, Sink
    from airflow_flinkstyle.agent.core.run.barrier import HeldQuery
    from airflow_flinkstyle.agent.core.run.driver import Driver
    from airflow_flinkstyle.agent.core.spark import Handle, Spark, SparkQuery
    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.protocol.cuts import Place
    from airflow_flinkstyle.types import NextOffset

_POLL_MS: Final = 50
_OTHERS_S: Final = 60.0
"""How long the savepoint's other queries are waited for, once the script waits for those that it started."""
_SILENT_S: Final = 600.0
"""The same in a script that never waits: it may load something for long, or only look at its queries."""
_STATE_AFTER: Final = "The replay ends; what it has written stays in its own output. The job was not touched."
_SCHEME: Final = re.compile("^[a-z0-9+.-]+:/*", re.IGNORECASE)
log = logging.getLogger(__name__)


class AdmittedStarts(Protocol):
    """Starts queries, and ends the run if that fails."""

    def start_admitted(self, query: JobQuery, run: Callable[[], SparkQuery]) -> Handle:
        """Start a query that was admitted."""

    def leave_unstarted(self, query: JobQuery) -> None:
        """Note that an admitted query is not started."""

    def run_to_end(self, action: Callable[[], None]) -> None:
        """Run an action that no thread of the script waits for; an error ends the run."""


class Replaying:
    """The queries of a replay; none in a driver that replays nothing."""

    def __init__(self, driver: Driver, starter: AdmittedStarts) -> None:
        self._driver, self._starter = driver, starter
        self._lock = threading.Lock()
        self._running: dict[str, Handle] = {}
        """By query, the script's handle of it."""
        self._done: set[str] = set()
        self._newest_s = 0.0
        self._awaited_s: float | None = None
        """When the script first waited for a query."""

    def asked(self) -> Replay | None:
        """Return what this driver replays; None if it replays nothing."""
        return Replay.of_setting(self._driver.queries.spark.setting(REPLAY))

    def handles(self) -> list[Handle]:
        """Return the script's handles: to the script its queries run, also between two batches."""
        return list(self._running.values())

    def await_end(self) -> None:
        """Wait until the run ends; return at once if nothing is replayed."""
        if self._running and self._awaited_s is None:
            self._awaited_s = time.monotonic()
        while self._running and not self._driver.ending.wait(_POLL_MS / 1000):
            pass

    def require_allowed(self, query: JobQuery) -> None:
        """Refuse a query that could write where the job writes, or whose range is not known.

        Raises:
            FlinkstyleError: ``REPLAY_OUTPUT`` or ``REPLAY_SOURCE``; nothing was started. ``QUERY_NAME`` if
                the script starts it a second time.
            BadInputError: If it is upgraded.
        """
        asked = self.asked()
        if asked is None:
            return
        claim = self._driver.driver_run.claim
        if claim.rehearse is not None and not claim.is_drill:  # postponed, and then Spark's own
            raise BadInputError(
                f"A replay of job {asked.job} was expected to be started or to continue, found an upgrade of "
                "it that rehearses.",
                state_after=NOT_STARTED,
                remedy="Replay with the new version, under another name.",
            )
        if query.name in self._running:
            raise query_name_taken(query.name, "a second one while it is replayed")
        others = [source.provider for source in query.sources if not source.is_kafka]
        if others or query.name not in asked.queries:
            found = f"the source {others[0]}" if others else "no such query there: it would begin anew"
            raise REPLAY_SOURCE.error(query=query.name, job=asked.job, found=found)
        if (shared := shared_output(query.session, query.name, query.sink, asked)) is not None:
            raise REPLAY_OUTPUT.error(query=query.name, job=asked.job, found=shared)

    def begin(self, query: JobQuery) -> Handle:
        """Run an admitted query to the end of its range, in a thread of its own; returns its handle.

        None if this driver replays nothing.

        Raises:
            FlinkstyleError: ``REPLAY_RANGE`` if there is no such range.
        """
        asked = self.asked()
        if asked is None:
            return None
        ends = self._ends(query, asked)
        started = threading.Event()

        def begun() -> None:
            while not started.wait(_POLL_MS / 1000):
                self._driver.leave_if_ending()

        handle = query.session.stand_in(query.name, query.known_id or None, begun)
        query.is_bounded = True
        with self._lock:
            self._running[query.name], self._newest_s = handle, time.monotonic()
        settings = query.session.start_settings()

        def start() -> None:
            with settings.again():
                self._starter.start_admitted(query, partial(query.start.run, handle, once=True))
            started.set()

        run = partial(self._run, query, asked, ends, start)
        action = partial(self._starter.run_to_end, run)
        threading.Thread(target=action, name="flinkstyle-replay", daemon=True).start()
        return handle

    def _ends(self, query: JobQuery, asked: Replay) -> dict[Place, NextOffset]:
        """Return where the query ends, as its first driver has found it."""
        board = self._driver.board
        with leaving(_STATE_AFTER):
            held = barrier.read_held(self._driver.describe, query)
        noted = board.replay_ranges().get(query.name)
        if noted is None:
            found = self._range(query, asked, held)
            noted = board.create_replay_range(query.name, found)
        log.info("Query %s replays %d offsets, to %s", query.name, noted.offsets, noted.end)
        ends: dict[Place, NextOffset] = {}
        for key, view in held.views.items():
            ends |= barrier.places_of(view, noted.end[key])
        return ends

    def _range(self, query: JobQuery, asked: Replay, held: HeldQuery) -> ReplayRange:
        begin = {key: held.log.kafka_offsets(key) for key in held.views}
        if asked.until_ms is None:
            named = asked.until.get(query.name, {})
            end = {key: begin[key] | named.get(key, Offsets()) for key in begin}
        else:
            sources = {source.key(held.log.version): source for source in query.sources}
            end = {key: query.session.positions_at(sources[key], asked.until_ms) for key in begin}
        ranges = {
            key: range_of(begin[key], end[key], held.views[key], by_time=asked.until_ms is not None)
            for key in begin
        }
        return ReplayRange(begin=begin, end=ranges, found_at_ms=now_ms())

    # --- in a thread of its own ------------------------------------------------------------------

    def _run(
        self, query: JobQuery, asked: Replay, ends: Mapping[Place, NextOffset], start: Callable[[], None]
    ) -> None:
        """Run batch after batch; a stop or a savepoint may come between two."""
        while self._run_next(query, asked, ends, start):
            query.silenced_runs.add(query.started.run_id)  # the script's listeners get no event of this end
            while not query.started.await_end(_POLL_MS):
                if self._driver.ending.is_set():
                    return
        if self._driver.ending.is_set():
            return
        if query.query is None:  # an empty range, or an earlier driver has run it
            self._starter.leave_unstarted(query)
        log.info("Query %s has replayed its range", query.name)
        self._end(asked, query)

    def _run_next(
        self, query: JobQuery, asked: Replay, ends: Mapping[Place, NextOffset], start: Callable[[], None]
    ) -> bool:
        """Begin the next batch, planned here unless it was before; return whether there is one.

        Planned and started under one lock: if a savepoint ran the planned batch in between, Spark would plan
        one without an end.
        """
        with self._driver.start_lock, leaving(_STATE_AFTER):
            if self._driver.ending.is_set():
                return False
            if query.query is not None and query.is_active:  # a cancelled savepoint still runs it
                return True
            if read_positions(query.checkpoint).planned is None:
                planned = self._planned(query, asked, ends)
                if planned is None:
                    return False
                number, offsets = planned
                query.checkpoint.create(f"offsets/{number}", offsets.render().encode())
            if query.query is not None:
                query.start_again(once=True)
                return True
        start()
        return True

    def _planned(
        self, query: JobQuery, asked: Replay, ends: Mapping[Place, NextOffset]
    ) -> tuple[int, OffsetLog] | None:
        held = barrier.read_held(self._driver.describe, query)
        planned = barrier.plan_batch(held, held.step(ends, asked.records))
        barrier.check_batch(query, held, planned)
        return None if planned is None else (held.batch_id + 1, planned)

    def _end(self, asked: Replay, query: JobQuery) -> None:
        """End the run after the last query; wait a while for the savepoint's other queries.

        Raises:
            FlinkstyleError: ``REPLAY_SOURCE`` if the script does not start them: a replay without them would
                pass for a whole one.
        """
        with self._lock:
            self._done.add(query.name)
        wanted = set(asked.queries) - dropped_queries(self._driver.queries.spark)
        while not self._driver.ending.is_set():
            with self._lock:
                missing, is_late = sorted(wanted - set(self._running)), self._is_late()
                if self._done != set(self._running):
                    return  # the last of them ends the run
            if not missing:
                self._driver.begin_end(Replayed())
                return
            if is_late:
                raise REPLAY_SOURCE.with_text(
                    f"The script was expected to start query {', '.join(missing)} of the savepoint, too, "
                    f"found that it has started {', '.join(sorted(self._running))} only.",
                    state_after=f"These have replayed their ranges. {_STATE_AFTER}",
                    remedy=f"Let the script start it, or name in {DROPPED} what it is to have no more; then "
                    "replay under another name.",
                )
            time.sleep(_POLL_MS / 1000)

    def _is_late(self) -> bool:
        now_s = time.monotonic()
        if self._awaited_s is None:
            return now_s - self._newest_s > _SILENT_S
        return now_s - max(self._newest_s, self._awaited_s) > _OTHERS_S


def range_of(begin: Offsets, end: Offsets, view: ClusterView, *, by_time: bool) -> Offsets:
    """Return where the range of one source ends, by partition. Pure.

    Args:
        begin: Where the savepoint is.
        end: As was asked for.
        view: The logs now.
        by_time: The end is a time: a partition that the savepoint has read further is not read.

    Raises:
        FlinkstyleError: ``REPLAY_RANGE`` if there is no such range.
    """
    for (topic, number), at in end.items():
        log_ = view.log_range((topic, number))
        if log_ is None or at > log_.last_stable:
            found = "no such partition" if log_ is None else f"that it can be read to {log_.last_stable}"
            raise REPLAY_RANGE.error(expected=f"at offset {at} of {topic}-{number}", found=found)
    earlier = [tp for tp, at in end.items() if at < begin.get(tp, at)]
    moves = any(at > begin.get(tp, at) for tp, at in end.items())
    if earlier and not (by_time and moves):
        topic, number = earlier[0]
        raise REPLAY_RANGE.error(
            expected=f"after the savepoint in {topic}-{number}",
            found=f"the end at {end[earlier[0]]}, the savepoint at {begin[earlier[0]]}",
        )
    return Offsets({tp: max(at, begin.get(tp, at)) for tp, at in end.items()})


def shared_output(spark: Spark, query: str, sink: Sink, asked: Replay) -> str | None:
    """Return where a query would write although the job does, or may; None if it writes elsewhere.

    By the topic's name alone, whatever the servers are called: one cluster has many names.
    """
    if sink.commits_offsets:
        return "a sink that commits offsets of the job's consumer group: give it commit_offsets=False"
    if sink.lineage and any(is_lineage_of(one, sink.lineage) for one in asked.lineages):
        return f"the transactional lineage {sink.lineage}: give its sink another name"
    if sink.topic is not None:
        return f"topic {sink.topic}" if sink.topic in {one.topic for one in asked.outputs} else None
    if sink.name in FILE_SINKS:
        return f"files ({sink.name}), where Spark fails at a tenth batch in a new place: write a table"
    place = spark.whole(sink.path) if sink.path else None
    if place is not None:
        known = (spark.whole(one.path) for one in asked.outputs if one.path)
        return f"the place {place}" if any(one and _overlap(one, place) for one in known) else None
    if sink.name in WRITE_NOWHERE or query in asked.own_outputs:
        return None
    return f"a sink that does not name its place ({sink.name}): confirm that it is another one (own_outputs)"


def _overlap(one: str, other: str) -> bool:
    """Return whether two places are one, or one is in the other, whatever their schemes."""
    first, second = sorted(_SCHEME.sub("", place).strip("/") + "/" for place in (one, other))
    return second.startswith(first)
