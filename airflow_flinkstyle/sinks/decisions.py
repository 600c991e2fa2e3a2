"""What of a batch was written already and is left out, and whether this run may write the rest. Pure.

Spark runs a batch again after a crash, always the newest it had planned. So at the begin of a run a batch is
new, or was written in part, or was written whole and not yet committed by Spark; anything else means that
the checkpoint and the markers do not belong together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.sinks.errors import (
    RUN_SUPERSEDED,
    SHARD_COUNT,
    SINK_LINEAGE,
    plan_changed,
    replay_differs,
)
from airflow_flinkstyle.sinks.marker import WRAP, Completion, Marker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_flinkstyle.sinks.resume import Resume
    from airflow_flinkstyle.sinks.settings import SinkSettings

Total = tuple[int, int]
"""Records, and their digest."""


def written_before(
    settings: SinkSettings, before: Marker | None, *, shard: int, batch_id: int, plan: str
) -> Marker | None:
    """Return the marker of a shard that has written the batch: it is compared, and not written again.

    Args:
        settings: The sink.
        before: The shard's marker.
        shard: From 0.
        batch_id: The batch that is to be written.
        plan: What its records are made with.

    Returns:
        None if the shard is to be written.

    Raises:
        FlinkstyleError: ``PLAN_CHANGED`` if the shard was written before with other columns.
        FlinkstyleError: ``SINK_LINEAGE`` if a later batch was written before.
        FlinkstyleError: ``RUN_SUPERSEDED`` if a later run has begun to write.
    """
    if before is None or before.batch_id < batch_id:
        _require_claimed(settings, before, shard)
        return None
    if before.batch_id > batch_id:
        raise SINK_LINEAGE.with_text(
            f"Shard {shard} of lineage {settings.lineage} was expected to end before batch "
            f"{batch_id}, but has written batch {before.batch_id}: an older state was restored.",
            state_after="Nothing was written; the batch would have been left out silently.",
            remedy="Start the job with rewind='fork' (a new lineage) or 're-emit'.",
        )
    if before.plan != plan:
        raise plan_changed(batch_id, [shard])
    return before


def _require_claimed(settings: SinkSettings, before: Marker | None, shard: int) -> None:
    """Check that this run may write the shard.

    A task of a driver that was frozen may begin after a later run has continued; if the lineage came back
    from another cluster, even with a batch that no marker here knows. Its producer fences the later run's
    only until that tries again; this check keeps the task from writing.
    """
    if before is None or before.run != settings.run:
        raise RUN_SUPERSEDED.error(lineage=settings.lineage, shard=shard)


def require_same_shard(batch_id: int, shard: int, was: Marker, now: Total) -> None:
    """Check that a shard of a batch would now be what was written.

    Raises:
        FlinkstyleError: ``REPLAY_DIFFERS`` if it has other records.
    """
    if now != (was.records, was.digest):
        raise replay_differs(batch_id, [shard])


def records_there(
    batch_id: int,
    was: Mapping[int, Marker],
    *,
    complete: bool,
    plan: str,
    totals: Callable[[], Mapping[int, Total]],
) -> int | None:
    """Compare a batch that an earlier run has written with what it would be now, before anything is written.

    Args:
        batch_id: The batch.
        was: The markers of the shards that have written it.
        complete: Whether all of its shards have.
        plan: What its records are made with.
        totals: Returns records and digest of each shard as it would be written.

    Returns:
        The number of its records if all of it was written; None if some of it or all is still to be written.

    Raises:
        FlinkstyleError: ``PLAN_CHANGED`` if it was written with other columns.
        FlinkstyleError: ``REPLAY_DIFFERS`` if it has other records.
    """
    if not was:
        return None
    if changed := [shard for shard, marker in was.items() if not marker.same_columns(plan)]:
        raise plan_changed(batch_id, changed)
    now = totals()
    if complete:  # perhaps with another number of shards
        return require_same_batch(batch_id, was, now.values())
    differ = [shard for shard, marker in was.items() if now[shard] != (marker.records, marker.digest)]
    if differ:
        raise replay_differs(batch_id, differ)
    return None


def require_same_batch(batch_id: int, was: Mapping[int, Marker], now: Iterable[Total]) -> int:
    """Check that a complete batch, run again by however many shards, would be what was written.

    Args:
        batch_id: The batch.
        was: The markers of the shards that have written it.
        now: Records and digest of each shard as it would be written.

    Returns:
        The number of its records.

    Raises:
        FlinkstyleError: ``REPLAY_DIFFERS`` if it has other records.
    """
    total = _sum((marker.records, marker.digest) for marker in was.values())
    if _sum(now) != total:
        raise replay_differs(batch_id, was)
    return total[0]


def _sum(parts: Iterable[Total]) -> Total:
    listed = list(parts)
    return sum(records for records, _ in listed), sum(digest for _, digest in listed) % WRAP


def begins_behind(
    resume: Resume | None, cluster_id: str, batch_id: int, found: Completion | None
) -> int | None:
    """Return the batch behind which a lineage begins on a cluster; None to take it as it is there."""
    if resume is None:
        return None
    completed = found.batch_id if found else None
    return resume.begins_behind(cluster_id=cluster_id, batch_id=batch_id, completed=completed)


def begun(settings: SinkSettings, query_id: str, after_batch: int) -> Completion:
    """Return the completion of a lineage that begins behind a batch."""
    return Completion(batch_id=after_batch, records=0, shards=settings.shards, query_id=query_id)


def none_yet(settings: SinkSettings, query_id: str, batch_id: int) -> Completion:
    """Return the completion of a lineage that has written nothing, which only its first batch may find."""
    if batch_id > 0:
        raise SINK_LINEAGE.with_text(
            f"Lineage {settings.lineage} was expected to have written the batches before {batch_id}, found "
            f"no record of any in {settings.control_topic}.",
            remedy="If this is a new lineage (a fork, another cluster), call begin_lineage with the batch "
            "before it; if not, the control topic was deleted: find out which batch the output ends with "
            "first.",
        )
    return begun(settings, query_id, -1)


def require_owner(settings: SinkSettings, completed: Completion | None, query_id: str) -> None:
    """Check that no other query writes under the lineage."""
    if completed is not None and completed.query_id != query_id:
        raise SINK_LINEAGE.with_text(
            f"Lineage {settings.lineage} was expected to be written by query {query_id}, but query "
            f"{completed.query_id} has written its batches up to {completed.batch_id}.",
            remedy="Give this query a lineage of its own.",
        )


def require_next(
    settings: SinkSettings,
    completed: Completion,
    markers: Mapping[int, Marker],
    *,
    query_id: str,
    batch_id: int,
) -> None:
    """Check that a run's first batch follows what its lineage has written, whole or in part.

    Raises:
        FlinkstyleError: ``SINK_LINEAGE`` if it does not, or another query writes under the lineage.
        FlinkstyleError: ``SHARD_COUNT`` if the number of shards was changed while a batch is half written.
    """
    require_owner(settings, completed, query_id)
    newest = max([completed.batch_id, *(marker.batch_id for marker in markers.values())])
    if not newest <= batch_id <= completed.batch_id + 1:
        raise SINK_LINEAGE.with_text(
            f"Lineage {settings.lineage} has completed batch {completed.batch_id} and written batch "
            f"{newest}, so batch {max(newest, completed.batch_id + 1)} was expected next, found {batch_id}.",
            state_after="Nothing was written; batches that are known would have been left out silently.",
            remedy="If an older savepoint was restored, start with rewind='fork' (a new lineage) or "
            "'re-emit'.",
        )
    require_shards(settings, completed, markers)


def _done(completed: Completion | None) -> int:
    return completed.batch_id if completed else -1


def _half_written(completed: Completion | None, markers: Mapping[int, Marker]) -> dict[int, Marker]:
    """Return the shards that have written a batch which is not complete."""
    return {shard: marker for shard, marker in markers.items() if marker.batch_id > _done(completed)}


def require_shards(
    settings: SinkSettings, completed: Completion | None, markers: Mapping[int, Marker]
) -> None:
    """Check that what is half written was written with as many shards as the job asks for."""
    beyond = _half_written(completed, markers).values()
    half = next((marker for marker in beyond if marker.shards != settings.shards), None)
    if half is not None:
        raise SHARD_COUNT.with_text(
            f"Batch {half.batch_id} is half written with {half.shards} shards, but the job asks for "
            f"{settings.shards}.",
            state_after="Nothing was written; what is half written stays as it is.",
            remedy=f"Start the job once with shards={half.shards} until a batch has completed, stop "
            "it, then change the number.",
        )


def require_nothing_half_written(
    settings: SinkSettings, completed: Completion | None, markers: Mapping[int, Marker]
) -> None:
    """Check, on a cluster that a lineage comes back to, that no part of a batch came while it was away."""
    beyond = _half_written(completed, markers)
    if beyond:
        newest = max(marker.batch_id for marker in beyond.values())
        raise SINK_LINEAGE.with_text(
            f"Lineage {settings.lineage} was expected to have left {settings.cluster} behind batch "
            f"{_done(completed)}, found that shards {sorted(beyond)} have written up to batch {newest} "
            "there: a driver that was taken for dead kept writing after the sink moved away.",
            state_after="Nothing was written; those records are in the output a second time.",
            remedy="Remove them from what reads the output, and start with rewind='fork' (a new lineage).",
        )
