"""Take a savepoint of a job: capture each query, then publish the manifest, last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint.capture import capture_query, ignore, never
from airflow_flinkstyle.savepoint.errors import TakeCancelledError
from airflow_flinkstyle.savepoint.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_flinkstyle.savepoint.capture import CaptureProgress
    from airflow_flinkstyle.savepoint.manifest import KafkaLog, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import Alignment, BatchId


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySource:
    """One query to include, and what the caller knows of it."""

    name: str
    checkpoint: ObjectStore
    """Rooted at the query's checkpoint location."""
    kafka: Mapping[str, KafkaLog]
    """By position (offset log v1) or source name (v2); empty for a query without Kafka."""
    sink_lineage: str | None = None
    sink: str | None = None
    """Spark's name of the query's sink; None if unknown."""
    batch_id: BatchId | None = None
    """Demand that the checkpoint ends with this batch; None for whatever is newest."""
    runs_on: bool = False
    """The query has gone on from ``batch_id``: cut it there all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointLabel:
    """What the manifest says about the savepoint as a whole."""

    savepoint_id: str
    taken_at_ms: int
    """Epoch milliseconds, UTC."""
    spark_version: str
    taken_from_generation: int | None
    alignment: Alignment = "none"
    cut_id: str | None = None
    """Shared by the savepoints of several jobs that were cut together."""


def take_savepoint(
    repository: SavepointRepository,
    queries: Sequence[QuerySource],
    label: SavepointLabel,
    *,
    previous: Manifest | None = None,
    cancelled: Callable[[], bool] = never,
    progress: Callable[[CaptureProgress], None] = ignore,
) -> Manifest:
    """Take a savepoint and return its manifest; if one of this id exists, that one is returned.

    Args:
        repository: Where the savepoint goes.
        queries: All queries of the job.
        label: Id, time and origin.
        previous: An earlier savepoint of the job; its SSTs are not uploaded again.
        cancelled: Asked before each file and before the manifest; a yes leaves no savepoint.
        progress: Told after each file.

    Raises:
        TakeCancelledError: If ``cancelled`` answered yes.
        FlinkstyleError: Whatever ``capture_query`` or the store raises; no savepoint was made then.
    """
    existing = repository.find(label.savepoint_id)
    if existing is not None:
        return existing
    _require_names(queries)
    snapshots = [
        capture_query(
            query.checkpoint,
            repository,
            name=query.name,
            kafka=query.kafka,
            previous=previous.query(query.name) if previous else None,
            sink_lineage=query.sink_lineage,
            sink=query.sink,
            batch_id=query.batch_id,
            runs_on=query.runs_on,
            cancelled=cancelled,
            progress=progress,
        )
        for query in queries
    ]
    if cancelled():
        raise TakeCancelledError.of(f"job {repository.job}")
    manifest = compose(repository.job, snapshots, label)
    repository.publish(manifest)
    return manifest


def compose(job: str, snapshots: Sequence[QuerySnapshot], label: SavepointLabel) -> Manifest:
    """Put captured queries together. Pure; whoever captured them itself publishes the result."""
    return Manifest(
        savepoint_id=label.savepoint_id,
        job=job,
        parent=None,
        alignment=label.alignment,
        cut_id=label.cut_id,
        taken_at_ms=label.taken_at_ms,
        taken_from_generation=label.taken_from_generation,
        spark_version=label.spark_version,
        evidence={},
        queries=tuple(sorted(snapshots, key=lambda snapshot: snapshot.name)),
    )


def _require_names(queries: Sequence[QuerySource]) -> None:
    names = [query.name for query in queries]
    if not names or len(set(names)) != len(names) or not all(names):
        raise BadInputError(
            f"Expected at least one query, each with a name of its own, found {names}.",
            left="No savepoint was made.",
            remedy="Give each query a name with queryName().",
        )
