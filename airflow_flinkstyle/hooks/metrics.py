"""A job's numbers as Airflow's own metrics: StatsD, Datadog or OpenTelemetry, as Airflow is configured.

They are read from the job's records, by the task that watches a job, or by the trigger that measures all
jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from airflow_flinkstyle.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.jobs.status import JobStatus
    from airflow_flinkstyle.protocol.query_records import Pace
    from airflow_flinkstyle.savepoint.repository.summary import Summary

PREFIX: Final = "flinkstyle"


class Stats(Protocol):
    """The part of Airflow's metrics that is used here."""

    def gauge(self, stat: str, value: float, *, tags: dict[str, str]) -> None:
        """Set a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One number of a job."""

    name: str
    value: float
    job: str
    query: str | None = None

    @property
    def tags(self) -> dict[str, str]:
        """Its job and query; not called ``job``, which Prometheus keeps for itself."""
        return {"streaming_job": self.job, **({"query": self.query} if self.query else {})}

    @property
    def flat_name(self) -> str:
        """The name for a StatsD without tags: it holds the job and the query."""
        owners = [part.replace(".", "__") for part in (self.job, self.query) if part]
        return ".".join((PREFIX, self.name, *owners))


def measure(
    job: str, status: JobStatus, newest: Summary | None, *, now_ms: int, failed: bool = False
) -> Iterator[Measured]:
    """Yield a job's numbers, without those that are unknown. Pure.

    Args:
        job: Its name.
        status: What it does.
        newest: Its newest savepoint.
        now_ms: The time.
        failed: Whether its driver had failed before a caller saved and closed it.
    """
    from airflow_flinkstyle.jobs.status import NeverStarted, Running, stays_down

    yield Measured(name="up", value=float(isinstance(status, Running)), job=job)
    yield Measured(name="stopped", value=float(stays_down(status) and not failed), job=job)
    if newest is not None:
        age_s = max(0, now_ms - newest.taken_at_ms) / 1000
        yield Measured(name="savepoint_age_s", value=age_s, job=job)
        yield Measured(name="savepoint_bytes", value=newest.size_bytes, job=job)
    if isinstance(status, NeverStarted):
        return
    yield Measured(name="generation", value=int(status.run.generation), job=job)
    heartbeat = status.run.heartbeat
    for name, query in heartbeat.queries.items() if heartbeat is not None else ():
        values = {
            "batch": query.batch_id,
            "batch_age_s": _age_s(query.batch_committed_at_ms, now_ms),
            **(_of_pace(query.pace, now_ms) if query.pace is not None else {}),
            **(_rates(query.pace, status) if query.pace is not None else {}),
        }
        for metric, value in values.items():
            if value is not None:
                yield Measured(name=metric, value=value, job=job, query=name)


def _of_pace(pace: Pace, now_ms: int) -> dict[str, float | None]:
    return {
        "batch_ms": pace.batch_ms,
        "rows": pace.rows,
        "lag_records": pace.lag_records,
        "watermark_age_s": _age_s(pace.watermark_ms, now_ms),
        "state_rows": pace.state_rows,
    }


def _rates(pace: Pace, status: JobStatus) -> dict[str, float | None]:
    """Return the rates; of a query that has no new batch, or whose job does not run, they are 0.

    By the driver's own clock.
    """
    from airflow_flinkstyle.jobs.status import Running

    at_ms = status.heartbeat.written_at_ms if isinstance(status, Running) else 0
    now = pace.at(at_ms, runs=isinstance(status, Running))
    return {"input_rows_per_s": now.input_rows_per_s, "processed_rows_per_s": now.processed_rows_per_s}


def _age_s(at_ms: int | None, now_ms: int) -> float | None:
    return None if at_ms is None else max(0, now_ms - at_ms) / 1000


def emit(measured: Iterator[Measured], stats: Stats, *, tagged: bool) -> None:
    """Set each number.

    Args:
        measured: The numbers.
        stats: Airflow's metrics.
        tagged: Whether they keep tags apart; if not, the name holds the job and the query.
    """
    for number in measured:
        if tagged:
            stats.gauge(f"{PREFIX}.{number.name}", number.value, tags=number.tags)
        else:
            stats.gauge(number.flat_name, number.value, tags={})


def measure_job(hook: StreamingJobHook, job: str, stats: Stats, *, tagged: bool) -> None:
    """Read a job's records once, and set its numbers."""
    from airflow_flinkstyle.jobs.stopped.last_run import failed_before

    client, newest = hook.client(job), hook.newest_savepoint(job)
    status = client.view.status()
    failed = failed_before(client.view, status) is not None
    emit(measure(job, status, newest, now_ms=now_ms(), failed=failed), stats, tagged=tagged)


def knows_tags() -> bool:
    """Return whether Airflow's metrics, as they are configured, keep tags apart."""
    from airflow_flinkstyle.hooks.airflow_versions import conf

    settings = ("otel_on", "statsd_datadog_enabled", "statsd_influxdb_enabled")
    return any(conf.getboolean("metrics", name, fallback=False) for name in settings)
