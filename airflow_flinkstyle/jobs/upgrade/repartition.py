"""State in more partitions, or in RocksDB, as a part of an upgrade: what the new version's driver is told.

The driver writes the state before it starts (``agent.run.repartition``): that of the hot savepoint, on which
it rehearses, and in the window that of the savepoint with which the old version stopped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint.stores_in_use import SHUFFLE_PARTITIONS
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint.compat import (
    PROVIDER,
    REPARTITION,
    ROCKSDB,
    ROCKSDB_CLASS,
    STATE_PROVIDER,
    repartitioned_id,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.spec import JobSpec
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository


def with_partitions(spec: JobSpec, partitions: int | None) -> JobSpec:
    """Return the job with another number of shuffle partitions; None: as it is.

    Raises:
        BadInputError: If it is no number of partitions.
    """
    if partitions is None:
        return spec
    if partitions < 1:
        raise BadInputError(
            f"A number of shuffle partitions from 1 on was expected, found {partitions}.",
            state_after="Nothing was started or stopped.",
            remedy="Correct shuffle_partitions.",
        )
    asked = str(partitions)
    return replace(spec, conf={**spec.conf, SHUFFLE_PARTITIONS: asked, REPARTITION: asked})


def with_provider(spec: JobSpec, provider: str | None) -> JobSpec:
    """Return the job with its state moved to another provider; None: as it is.

    Raises:
        BadInputError: If it is none that state can be moved to.
    """
    if not provider:
        return spec
    if provider != ROCKSDB:
        raise BadInputError(
            f"A provider to move the state to was expected, {ROCKSDB}, found {provider!r}.",
            state_after="Nothing was started or stopped.",
            remedy="Correct state_provider.",
        )
    return replace(spec, conf={**spec.conf, PROVIDER: ROCKSDB_CLASS, STATE_PROVIDER: ROCKSDB})


def undone(old: JobSpec, new: JobSpec, saved: Manifest) -> JobSpec:
    """Return the old version as it can continue where the new one is.

    It has its own number of partitions; state that has moved to RocksDB stays there.

    Args:
        old: What ran before.
        new: The version that is left.
        saved: What the old one stopped with.
    """
    if STATE_PROVIDER in new.conf:
        old = replace(old, conf={**old.conf, PROVIDER: ROCKSDB_CLASS})
    numbers = {query.pinned_confs.get(SHUFFLE_PARTITIONS) for query in saved.queries} - {None}
    if REPARTITION not in new.conf or len(numbers) != 1:
        return old
    return replace(old, conf={**old.conf, REPARTITION: str(numbers.pop())})


def begun_at(
    batches: Mapping[str, int], spec: JobSpec, savepoint_id: str, repository: SavepointRepository
) -> dict[str, int]:
    """Return the batches that a new version begins behind, with empty ones that a repartition has made.

    Args:
        batches: Query name -> last batch of the old version.
        spec: The new version.
        savepoint_id: What the old one stopped with.
        repository: The job's savepoints.
    """
    asked = spec.conf.get(REPARTITION, "")
    made = repository.find(repartitioned_id(savepoint_id, int(asked))) if asked.isdigit() else None
    return {**batches, **{query.name: int(query.batch_id) for query in (made.queries if made else ())}}
