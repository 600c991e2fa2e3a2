"""Whether a new version works: it commits its first batch, and is observed against its bounds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.cutover.downtime import batch_ms
from airflow_flinkstyle.jobs.errors import DriverFailedError
from airflow_flinkstyle.jobs.status import Closed, Failed, Running
from airflow_flinkstyle.jobs.stopped import last_run
from airflow_flinkstyle.protocol.records import PAST_THE_AGENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.jobs.cutover.context import CutoverContext
    from airflow_flinkstyle.protocol.history import History
    from airflow_flinkstyle.protocol.query_records import Pace
    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.types import Generation

_MINUTE_S = 60
_BEFORE_S = 600
"""The old version's rate is the mean over this long before its stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a new version must keep, and for how long."""

    observe_s: float = 0.0
    """How long it is watched after its first batch; several times what a batch takes. 0: not at all."""
    max_lag: int | None = None
    """How many records a source, or a topic, may be behind at the end, unless it was further behind at the
    start; known for Kafka only. None: any number."""
    min_rate: float | None = 0.5
    """Which part of the old version's input rows per second it must read, if that much arrives and it falls
    behind. None: any."""


UNWATCHED = Bounds()


class Rates:
    """The input rates that one driver's heartbeats report: of each query the mean of its batches."""

    def __init__(self, since_ms: int) -> None:
        """Args: ``since_ms``: batches that began before do not count, epoch milliseconds of the driver."""
        self._since_ms = since_ms
        self._rates: dict[str, dict[int, float]] = {}

    def add(self, heartbeat: Heartbeat) -> None:
        """Note the newest batch of each query, once."""
        for name, query in heartbeat.queries.items():
            pace = query.pace
            if pace is not None and pace.begun_at_ms >= self._since_ms and pace.input_rows_per_s is not None:
                self._rates.setdefault(name, {})[pace.batch_id] = pace.input_rows_per_s

    def rows_per_s(self) -> float | None:
        """Return what all queries read together; None if no batch was noted."""
        return sum(fmean(rates.values()) for rates in self._rates.values()) if self._rates else None


def rate_before(old: Heartbeat, history: History | None) -> float | None:
    """Return the input rows per second of a version that has closed.

    Args:
        old: Its last heartbeat.
        history: The job's, by the minute; a job that is too young for one is known by its last batches.
    """
    until_s = old.written_at_ms // 1000 - _MINUTE_S
    points = history.samples().get(_MINUTE_S, []) if history is not None else []
    rates = [one.input_rows_per_s for one in points if until_s - _BEFORE_S <= one.at_s <= until_s]
    if rates:
        return fmean(rates)
    last = Rates(0)
    last.add(old)
    return last.rows_per_s()


def behind(first: Heartbeat, now: Heartbeat, bounds: Bounds) -> Iterator[str]:
    """Yield what is further behind than it may be, and than it was."""
    if bounds.max_lag is None:
        return
    before = lags(first)
    for (name, where), lag in sorted(lags(now).items()):
        if lag > bounds.max_lag and lag > before.get((name, where), 0):
            yield f"Query {name} is {lag} records behind in {where}, at most {bounds.max_lag} were allowed."


def slower(
    first: Heartbeat, now: Heartbeat, *, rate: float | None, before: float | None, bounds: Bounds
) -> Iterator[str]:
    """Yield why it reads too little, if it falls behind and enough arrived to read.

    What arrived is what it read plus what its lag has grown by. Where little arrives, as at night, a few
    records more or less at the two heartbeats prove nothing.
    """
    if bounds.min_rate is None or not before or rate is None or rate >= bounds.min_rate * before:
        return
    lag, before_lag = sum(lags(now).values()), sum(lags(first).values())
    seconds = (now.written_at_ms - first.written_at_ms) / 1000
    grows_by = (lag - before_lag) / seconds if seconds > 0 else inf
    if lag > before_lag and rate + grows_by >= bounds.min_rate * before:
        yield (
            f"It reads {rate:,.0f} rows per second, where the version before read {before:,.0f}, and has "
            f"fallen from {before_lag} to {lag} records behind."
        )


def unknown(now: Heartbeat, *, rate: float | None, before: float | None, bounds: Bounds) -> Iterator[str]:
    """Yield what cannot be judged, one sentence each."""
    without = sorted(now.queries.keys() - {name for name, _ in lags(now)})
    named = ", ".join(without)
    if without and bounds.max_lag is not None:
        yield f"How far {named} is behind: only Kafka reports that."
    if bounds.min_rate is not None and not before:
        yield "Its rate: the version before has reported none."
    elif bounds.min_rate is not None and rate is None:
        yield "Its rate: it has run no batch that began in this time."
    elif bounds.min_rate is not None and without:
        yield f"The rate of {named}: only Kafka reports whether there was more to read."


def lags(heartbeat: Heartbeat) -> dict[tuple[str, str], int]:
    """Return (query, where) -> records behind: by topic where offsets are committed, else by source."""
    found: dict[tuple[str, str], int] = {}
    for name, query in heartbeat.queries.items():
        by_topic = {(name, topic): lag for group in query.groups.values() for topic, lag in group.lag.items()}
        found.update(by_topic or _by_source(name, query.pace))
    return found


def _by_source(name: str, pace: Pace | None) -> Mapping[tuple[str, str], int]:
    sources = pace.sources if pace is not None else ()
    return {
        (name, f"source {number} ({source.description})"): source.lag_records
        for number, source in enumerate(sources)
        if source.lag_records is not None
    }


# Whether a new version commits its first batch after the takeover.

_MOST_RETRIES = 1
"""How often a new version is started again that fails before its first commit, of a cause that may pass. A
running job is retried for half an hour; here the version before waits to continue."""


def await_first(context: CutoverContext, new: Generation, before: Mapping[str, int]) -> Mapping[str, Any]:
    """Wait for the first committed batch.

    Args:
        context: The upgrade.
        new: The new version's generation.
        before: Query name -> last batch of the old version.

    Returns:
        ``failure``, why there was none, or None; ``batches``, query name -> batch seen committed, or None if
        there was nothing to read; ``first_commit_at_ms``, epoch milliseconds, or None; ``first_batch_ms``,
        what that batch consisted of, as far as Spark has reported it.
    """
    client, timeout_s = context.client, context.settings.first_commit_timeout_s
    wait = client.view.waiting(timeout_s)
    while True:
        try:
            status = client.view.status()
            if isinstance(status, Failed) and status.run.next_retry > _MOST_RETRIES:
                raise client.drivers.driver_failed(status.run)
            status = client.drivers.ensure_running(status)
        except DriverFailedError as error:
            status, failure = None, str(error)
        else:
            failure = f"it committed none within {timeout_s:g} s."
        run = client.view.run(new)
        queries = run.heartbeat.queries if run.heartbeat else {}
        batches = run.heartbeat.batches() if run.heartbeat else {}
        committed = [name for name, batch in batches.items() if batch > before.get(name, -1)]
        if committed and status is not None:
            at_ms = [at for name in committed if (at := queries[name].batch_committed_at_ms) is not None]
            return {
                "failure": None,
                "batches": batches,
                "first_commit_at_ms": min(at_ms, default=None),
                "first_batch_ms": batch_ms(run.heartbeat, before) if run.heartbeat else {},
            }
        # The status decides, not the later heartbeat: of a driver that failed in between, its error is read.
        if status is None or isinstance(status, Closed):
            return _failed(failure if status is None else "its script ended.")
        if not wait.again():
            idle = isinstance(status, Running) and not _has_planned(context, new, before)
            return {"failure": None if idle else failure, "batches": None, "first_commit_at_ms": None}
        context.journal.check()


def _failed(failure: str) -> Mapping[str, Any]:
    return {"failure": failure, "batches": None, "first_commit_at_ms": None}


def _has_planned(context: CutoverContext, new: Generation, before: Mapping[str, int]) -> bool:
    """Return whether any query found something to read: Spark plans no batch without data."""
    run = context.client.view.run(new)
    for name in run.heartbeat.queries if run.heartbeat else ():
        planned = list_batches(last_run.read_checkpoint(context.client.view, run, name), "offsets")
        if max(planned, default=-1) > before.get(name, -1):
            return True
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What was observed of a new version."""

    observed_s: float
    reasons: tuple[str, ...]
    """Why it is unhealthy, one sentence each; empty if it is healthy."""
    batches: Mapping[str, int]
    """Query name -> how many batches it has committed meanwhile."""
    unknown: tuple[str, ...]
    """What could not be judged, one sentence each."""

    @property
    def failure(self) -> str | None:
        """All reasons in one text; None if it is healthy."""
        return " ".join(self.reasons) or None

    def as_result(self) -> dict[str, Any]:
        """Return plain values, for the journal."""
        return {**asdict(self), "failure": self.failure}


def summary(found: Mapping[str, Any]) -> str:
    """Return what ``as_result`` made in one line."""
    done = ", ".join(f"{count} batches of {name}" for name, count in sorted(found["batches"].items()))
    verdict = f"unhealthy: {found['failure']}" if found["failure"] else "healthy"
    unknown = f" Not judged: {' '.join(found['unknown'])}" if found["unknown"] else ""
    return f"{verdict} after {found['observed_s']:g} s, {done or 'no batches'}.{unknown}"


def observe(context: CutoverContext, new: Generation, bounds: Bounds) -> Health:
    """Watch a version for a while; returns early with what makes it unhealthy for certain."""
    client, clock = context.client, context.client.view.clock
    begun_s, first, now = clock.now_s, client.view.run(new).heartbeat, client.view.run(new).heartbeat
    wait, rates = client.view.waiting(bounds.observe_s), Rates(first.written_at_ms if first else 0)
    over, ended = False, ""
    while first is not None and not over:
        try:
            client.drivers.ensure_running()
        except DriverFailedError as error:
            ended = f"Its driver has ended: {error.problem}"
        run = client.view.run(new)
        now = run.heartbeat or first
        rates.add(now)
        if not ended and run.is_over:
            ended = how_ended(now)
        over = bool(ended or list(_certain(first, now))) or not wait.again()
        context.journal.check()
    if first is None or now is None:
        return Health(observed_s=0, reasons=("No heartbeat was found.",), batches={}, unknown=())
    reasons = [ended] if ended else [*_certain(first, now)]
    unknown: list[str] = []
    if not reasons:
        reasons, unknown = _judged(context, new, (first, now), rates.rows_per_s(), bounds)
    return Health(
        observed_s=round(clock.now_s - begun_s, 1),
        reasons=tuple(reasons),
        batches={
            name: max(0, batch - first.batches().get(name, -1)) for name, batch in now.batches().items()
        },
        unknown=tuple(unknown),
    )


def how_ended(last: Heartbeat) -> str:
    """Return why a run has ended, by its last heartbeat."""
    return f"Its driver has failed: {': '.join(last.error)}" if last.error else "Its script has ended."


def _judged(
    context: CutoverContext,
    new: Generation,
    heartbeats: tuple[Heartbeat, Heartbeat],
    rate: float | None,
    bounds: Bounds,
) -> tuple[list[str], list[str]]:
    """Return what a whole observation shows, and what it cannot show."""
    board, (first, now) = context.client.view.board, heartbeats
    old, history = board.heartbeat(context.old()), board.history()
    before = rate_before(old.value, history.value if history else None) if old else None
    stalled, unread = _stalled(context, new, first)
    reasons = [
        *stalled,
        *behind(first, now, bounds),
        *slower(first, now, rate=rate, before=before, bounds=bounds),
    ]
    return reasons, [*unread, *unknown(now, rate=rate, before=before, bounds=bounds)]


def _certain(first: Heartbeat, now: Heartbeat) -> Iterator[str]:
    """Yield what makes it unhealthy however long it is observed."""
    if now.incarnation != first.incarnation:
        times = now.incarnation - first.incarnation
        yield f"Its driver died and was started again, {times} times."
    for name in now.unregistered:
        yield f"Query {name} was {PAST_THE_AGENT}."
    for name, query in sorted(now.queries.items()):
        if query.failed:
            yield f"An error has ended query {name}: see the driver's log."


def _stalled(context: CutoverContext, new: Generation, first: Heartbeat) -> tuple[list[str], list[str]]:
    """Return the queries with a batch under way that have committed none, and those with unreadable logs.

    A query without records plans no batch, and is well.
    """
    run, stalled, unread = context.client.view.run(new), [], []
    for name in sorted(run.heartbeat.queries if run.heartbeat else ()):
        before = first.batches().get(name, -1)
        try:
            done, planned = last_run.newest_batches(context.client.view, run, name)
        except FlinkstyleError as error:
            unread.append(f"Whether query {name} has a batch under way: {error.problem}")
            continue
        if planned is not None and (-1 if done is None else done) <= before < planned:
            stalled.append(f"Query {name} has committed no batch, and batch {planned} is under way.")
    return stalled, unread
