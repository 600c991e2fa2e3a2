"""Whether a new version keeps up with its input: how far it is behind, how fast it reads. Pure.

A job that reads less than before is slower only if more was there to read. Kafka tells that by the lag; of
other sources nothing tells it, so they are not judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.protocol.history import History
    from airflow_flinkstyle.protocol.query_records import Pace
    from airflow_flinkstyle.protocol.records import Heartbeat

_MINUTE_S = 60
_BEFORE_S = 600
"""Of so long before its stop the old version's rate is the mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a new version must keep, and for how long."""

    observe_s: float = 0.0
    """How long it is watched after its first batch; several times what a batch takes. 0: not at all."""
    max_lag: int | None = None
    """How many records a source, or a topic, may be behind at the end, unless it was further behind at the
    begin; known for Kafka only. None: any number."""
    min_rate: float | None = 0.5
    """Which part of the old version's input rows per second it must read, if so much is there and it falls
    behind otherwise. None: any."""


UNWATCHED = Bounds()


class Rates:
    """The input rates that the heartbeats of one driver tell: of each query the mean of its batches."""

    def __init__(self, since_ms: int) -> None:
        """Args: ``since_ms``: batches that began before do not count, epoch milliseconds of the driver."""
        self._since_ms = since_ms
        self._seen: dict[str, dict[int, float]] = {}

    def add(self, beat: Heartbeat) -> None:
        """Note the newest batch of each query, once."""
        for name, query in beat.queries.items():
            pace = query.pace
            if pace is not None and pace.begun_at_ms >= self._since_ms and pace.input_rows_per_s is not None:
                self._seen.setdefault(name, {})[pace.batch_id] = pace.input_rows_per_s

    def rows_per_s(self) -> float | None:
        """Return what all queries read together; None if no batch was seen."""
        return sum(fmean(rates.values()) for rates in self._seen.values()) if self._seen else None


def rate_before(old: Heartbeat, history: History | None) -> float | None:
    """Return the input rows per second of a version that has closed.

    Args:
        old: Its last words.
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
    """Yield why it reads too little, if it falls behind and enough was there to read.

    What was there is what it read and what its lag has grown by. Where that is less, as at night, a few
    records more or less at the moments of two looks tell nothing.
    """
    if bounds.min_rate is None or not before or rate is None or rate >= bounds.min_rate * before:
        return
    lag, was = sum(lags(now).values()), sum(lags(first).values())
    seconds = (now.written_at_ms - first.written_at_ms) / 1000
    grows_by = (lag - was) / seconds if seconds > 0 else inf
    if lag > was and rate + grows_by >= bounds.min_rate * before:
        yield (
            f"It reads {rate:,.0f} rows per second, where the version before read {before:,.0f}, and has "
            f"fallen from {was} to {lag} records behind."
        )


def unknown(now: Heartbeat, *, rate: float | None, before: float | None, bounds: Bounds) -> Iterator[str]:
    """Yield what cannot be judged, one sentence each."""
    without = sorted(now.queries.keys() - {name for name, _ in lags(now)})
    named = ", ".join(without)
    if without and bounds.max_lag is not None:
        yield f"How far {named} is behind: only Kafka tells."
    if bounds.min_rate is not None and not before:
        yield "Its rate: the version before has told none."
    elif bounds.min_rate is not None and rate is None:
        yield "Its rate: it has run no batch that began in this time."
    elif bounds.min_rate is not None and without:
        yield f"The rate of {named}: only Kafka tells whether there was more to read."


def lags(beat: Heartbeat) -> dict[tuple[str, str], int]:
    """Return (query, where) -> records behind: by topic where offsets are committed, else by source."""
    found: dict[tuple[str, str], int] = {}
    for name, query in beat.queries.items():
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
