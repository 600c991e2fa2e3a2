"""``<job>/history.json``: how fast a job was, in a ring of fixed size, so that plots need no other system.

The newest two hours are kept by the minute, older ones ever more coarsely. Adding a point is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.typed_json import encode, stored
from airflow_flinkstyle.types import Count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_flinkstyle.protocol.query_records import Pace

RINGS: Final = ((60, 120), (600, 144), (3600, 168), (86400, 120))
"""Seconds that a point covers, and how many are kept: for two hours, a day, a week, 120 days."""
_MOST: Final = 10**15


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A job at one moment: all of its queries together."""

    at_s: Count
    """Epoch seconds; in a ring the begin of the time that the point covers."""
    samples: Count = 1
    """How many moments the point is made of."""
    input_rows_per_s: float
    """The mean; all queries together."""
    processed_rows_per_s: float
    """The mean; all queries together."""
    batch_ms: Count
    """The longest batch of any query."""
    lag_records: Count | None
    """The highest sum over all Kafka sources; None if there is none."""


Row = tuple[Count, Count, float, float, Count, Count | None]
"""A sample as it is stored, in the order of its fields."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """Points of one coarseness, the oldest first."""

    step_s: Count
    points: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class History(Record):
    """Written by one driver's agent, replaced only if unchanged."""

    what: ClassVar[str] = "history"

    rings: tuple[Ring, ...] = tuple(Ring(step_s=step_s) for step_s, _ in RINGS)

    def with_samples(self, samples: Iterable[Sample]) -> History:
        """Return the history with these added, in any order; each ring keeps its newest points."""
        kept = {ring.step_s: {row[0]: _sample(row) for row in ring.points} for ring in self.rings}
        rings = []
        for sample in samples:
            for step_s, _ in RINGS:
                points = kept.setdefault(step_s, {})
                at_s = sample.at_s - sample.at_s % step_s
                points[at_s] = _merged(points[at_s], sample) if at_s in points else _at(at_s, sample)
        for step_s, most in RINGS:
            points = kept.get(step_s, {})
            rows = tuple(_row(points[at_s]) for at_s in sorted(points)[-most:])
            rings.append(Ring(step_s=step_s, points=rows))
        return History(rings=tuple(rings))

    def answer(self) -> dict[str, list[dict[str, Any]]]:
        """Return the points for the page: each with the names of its fields."""
        return {str(step_s): encode(points) for step_s, points in self.samples().items()}

    def samples(self) -> dict[int, list[Sample]]:
        """Return the points by the seconds that one covers, the oldest first."""
        return {ring.step_s: [_sample(row) for row in ring.points] for ring in self.rings}


def totals(paces: Iterable[Pace | None], *, now_ms: int, runs: bool = True) -> Sample | None:
    """Return how fast all queries of a job are together; None if none has reported a batch.

    Args:
        paces: The newest report of each.
        now_ms: The time, by the clock of the driver that reported.
        runs: Whether the job runs.
    """
    known = [pace for pace in paces if pace is not None]
    if not known:
        return None
    now = [pace.at(now_ms, runs=runs) for pace in known]
    lags = [pace.lag_records for pace in known if pace.lag_records is not None]
    return Sample(
        at_s=now_ms // 1000,
        input_rows_per_s=sum(pace.input_rows_per_s or 0.0 for pace in now),
        processed_rows_per_s=sum(pace.processed_rows_per_s or 0.0 for pace in now),
        batch_ms=max(pace.batch_ms for pace in now),
        lag_records=sum(lags) if lags else None,
    )


def _merged(point: Sample, sample: Sample) -> Sample:
    total = point.samples + sample.samples
    mean: Mapping[str, float] = {
        name: (getattr(point, name) * point.samples + getattr(sample, name) * sample.samples) / total
        for name in ("input_rows_per_s", "processed_rows_per_s")
    }
    lags = [lag for lag in (point.lag_records, sample.lag_records) if lag is not None]
    return Sample(
        at_s=point.at_s,
        samples=total,
        batch_ms=max(point.batch_ms, sample.batch_ms),
        lag_records=max(lags, default=None),
        **mean,
    )


def _at(at_s: int, sample: Sample) -> Sample:
    return _sample((at_s, *_row(sample)[1:]))


def _row(point: Sample) -> Row:
    """Return a point as it is stored: numbers of at most 16 digits, rates to a tenth."""
    lag = point.lag_records
    return (
        point.at_s,
        min(point.samples, _MOST),
        round(min(point.input_rows_per_s, _MOST), 1),
        round(min(point.processed_rows_per_s, _MOST), 1),
        min(point.batch_ms, _MOST),
        None if lag is None else min(lag, _MOST),
    )


def _sample(row: Row) -> Sample:
    at_s, samples, input_rate, processed_rate, batch_ms, lag = row
    return Sample(
        at_s=at_s,
        samples=samples,
        input_rows_per_s=input_rate,
        processed_rows_per_s=processed_rate,
        batch_ms=batch_ms,
        lag_records=lag,
    )
