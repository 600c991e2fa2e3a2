"""Whether a new version that has committed its first batch does well: a value with reasons.

Judged by what its driver tells in its heartbeats, and by its checkpoints as far as they are seen from here.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.errors import DriverFailedError
from airflow_flinkstyle.jobs.running import last_run
from airflow_flinkstyle.jobs.upgrade import keeping_up
from airflow_flinkstyle.protocol.records import PAST_THE_AGENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.jobs.cutover.context import CutoverContext
    from airflow_flinkstyle.jobs.upgrade.keeping_up import Bounds
    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.types import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What was seen of a new version."""

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
    client, clock = context.client, context.client.clock
    begun_s, first, now = clock.now_s, client.run(new).heartbeat, client.run(new).heartbeat
    wait, rates = client.waiting(bounds.observe_s), keeping_up.Rates(first.written_at_ms if first else 0)
    over, ended = False, ""
    while first is not None and not over:
        try:
            client.ensure_running()
        except DriverFailedError as error:
            ended = f"Its driver has ended: {error.problem}"
        run = client.run(new)
        now = run.heartbeat or first
        rates.add(now)
        if not ended and run.is_over:
            ended = how_ended(now)
        over = bool(ended or list(_certain(first, now))) or not wait.again()
        context.journal.check()
    if first is None or now is None:
        return Health(observed_s=0, reasons=("It told nothing.",), batches={}, unknown=())
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
    """Return why nothing runs any more, by a run's last words."""
    return f"Its driver has failed: {': '.join(last.error)}" if last.error else "Its script has ended."


def _judged(
    context: CutoverContext,
    new: Generation,
    seen: tuple[Heartbeat, Heartbeat],
    rate: float | None,
    bounds: Bounds,
) -> tuple[list[str], list[str]]:
    """Return what a whole observation shows, and what it cannot show."""
    board, (first, now) = context.client.board, seen
    old, history = board.heartbeat(context.old()), board.history()
    before = keeping_up.rate_before(old.value, history.value if history else None) if old else None
    stalled, unseen = _stalled(context, new, first)
    reasons = [
        *stalled,
        *keeping_up.behind(first, now, bounds),
        *keeping_up.slower(first, now, rate=rate, before=before, bounds=bounds),
    ]
    return reasons, [*unseen, *keeping_up.unknown(now, rate=rate, before=before, bounds=bounds)]


def _certain(first: Heartbeat, now: Heartbeat) -> Iterator[str]:
    """Yield what no longer look would change."""
    if now.incarnation != first.incarnation:
        times = now.incarnation - first.incarnation
        yield f"Its driver died and was started again, {times} times."
    for name in now.unregistered:
        yield f"Query {name} was {PAST_THE_AGENT}."
    for name, beat in sorted(now.queries.items()):
        if beat.failed:
            yield f"An error has ended query {name}: see the driver's log."


def _stalled(context: CutoverContext, new: Generation, first: Heartbeat) -> tuple[list[str], list[str]]:
    """Return the queries with a batch under way that have committed none, and those that cannot be told.

    A query without records plans no batch, and is well.
    """
    run, stalled, unseen = context.client.run(new), [], []
    for name in sorted(run.heartbeat.queries if run.heartbeat else ()):
        before = first.batches().get(name, -1)
        try:
            done, planned = last_run.newest_batches(context.client, run, name)
        except FlinkstyleError as error:
            unseen.append(f"Whether query {name} has a batch under way: {error.problem}")
            continue
        if planned is not None and (-1 if done is None else done) <= before < planned:
            stalled.append(f"Query {name} has committed no batch, and batch {planned} is under way.")
    return stalled, unseen
