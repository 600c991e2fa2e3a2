"""Spark's own progress of a query, as heartbeats repeat it: bounded, whatever the query reads."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.kafka.login.driver import scrub
from airflow_flinkstyle.protocol.query_records import (
    MOST_CHARACTERS,
    MOST_PARTS,
    MOST_SOURCES,
    Pace,
    SourcePace,
)
from airflow_flinkstyle.python_versions import moment_of
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.agent.spark.untyped import PySpark

log = logging.getLogger(__name__)
_WITHOUT_WATERMARK_MS = 0
"""Spark's watermark before it has seen an event."""


def newest_pace(query: PySpark) -> Pace | None:
    """Return what Spark says of a query's newest batch; None before the first, or if it says it otherwise.

    Args:
        query: PySpark's ``StreamingQuery``; its own ``lastProgress`` makes dozens of calls of the JVM, so the
            JVM's is asked for, as one text.
    """
    try:
        progress = query._jsq.lastProgress()  # noqa: SLF001
        return None if progress is None else pace_of(json.loads(progress.json()))
    except Exception:  # nothing of the job depends on it
        log.debug("Spark's progress cannot be read", exc_info=True)
        return None


def pace_of(progress: Mapping[str, Any]) -> Pace:
    """Return what a heartbeat says of a progress, as Spark renders it to JSON.

    Raises:
        KeyError: And ``TypeError``, ``ValueError``, ``AttributeError``: if it is none.
    """
    watermark = (progress.get("eventTime") or {}).get("watermark")
    watermark_ms = _epoch_ms(watermark) if watermark else _WITHOUT_WATERMARK_MS
    parts = dict(progress.get("durationMs", {}))
    whole = int(parts.pop("triggerExecution", 0))
    return Pace(
        batch_id=BatchId(int(progress["batchId"])),
        begun_at_ms=_epoch_ms(progress["timestamp"]),
        batch_ms=whole,
        parts_ms={name: max(0, int(parts[name])) for name in sorted(parts)[:MOST_PARTS]},
        rows=int(progress.get("numInputRows", 0)),
        input_rows_per_s=_rate(progress, "inputRowsPerSecond"),
        processed_rows_per_s=_rate(progress, "processedRowsPerSecond"),
        watermark_ms=watermark_ms if watermark_ms != _WITHOUT_WATERMARK_MS else None,
        state_rows=sum(int(one.get("numRowsTotal", 0)) for one in progress.get("stateOperators", ())),
        sources=tuple(_source(one) for one in progress.get("sources", ())[:MOST_SOURCES]),
    )


def _source(source: Mapping[str, Any]) -> SourcePace:
    described = scrub(str(source.get("description", "")), os.environ)
    return SourcePace(description=described[:MOST_CHARACTERS], lag_records=_lag(source))


def _lag(source: Mapping[str, Any]) -> int | None:
    """Return how many records the batch left unread; None unless offsets are by topic and partition."""
    end, latest = source.get("endOffset"), source.get("latestOffset")
    if not isinstance(end, dict) or not isinstance(latest, dict) or not latest:
        return None
    behind = 0
    for topic, partitions in latest.items():
        read: Any = end.get(topic)
        if not isinstance(partitions, dict) or not isinstance(read, dict):
            return None
        behind += sum(
            max(0, int(at) - int(read[number])) for number, at in partitions.items() if number in read
        )
    return behind


def _rate(progress: Mapping[str, Any], name: str) -> float | None:
    """Return a rate to a tenth; Spark leaves out, or writes as a text, what it cannot divide."""
    rate = progress.get(name)
    return round(float(rate), 1) if isinstance(rate, int | float) and rate >= 0 else None


def _epoch_ms(moment: str) -> int:
    return int(moment_of(moment).timestamp() * 1000)
