"""The scratch copy of a savepoint's query: beside the checkpoint, with a query id of its own, never kept."""

from __future__ import annotations

import json
import logging
import uuid
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.board.takeover import wait_until_silent
from airflow_flinkstyle.agent.core.queries.registry import as_spark_writes
from airflow_flinkstyle.checkpoint import metadata, offset_log
from airflow_flinkstyle.checkpoint.inventory import read_inventory
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.places import MARK_KEY, is_own, own_place
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.retention.checkpoints import (
    CheckpointAccess,
    free_checkpoints,
    plan_checkpoints,
    remove_all,
)
from airflow_flinkstyle.storage.keys import below
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.agent.core.board.takeover import DriverRun
    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.run.driver import Driver
    from airflow_flinkstyle.agent.core.spark import Describe, Spark
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore

log = logging.getLogger(__name__)


def location_of(checkpoint_location: str) -> str:
    """Return where the scratch copies of a generation are: beside its checkpoints, never among them."""
    return f"{checkpoint_location.rstrip('/')}.rehearsal"


def restore(
    spark: Spark, location: str, manifest: Manifest, name: str, repository: SavepointRepository
) -> tuple[ObjectStore, str]:
    """Restore a query of a savepoint; returns the store at its copy, and where that is as Spark writes it.

    Spark refuses two active queries of one id, so the copy gets a fresh one.
    """
    place = below(location, name)
    store = spark.open(place)
    snapshot = manifest.query(name)
    if snapshot is None:
        raise AssertionError(f"savepoint {manifest.savepoint_id} has no query {name}")
    # A copy runs batches of its own, at other records than were planned.
    restore_query(manifest, replace(snapshot, planned_offsets=None), repository, store)
    known = metadata.parse(store.read("metadata").decode()).fields
    store.write("metadata", json.dumps({**known, "id": str(uuid.uuid4())}).encode())
    return store, as_spark_writes(place)


def read_newest(describe: Describe, copy: JobQuery, records: int) -> None:
    """Move a copy's positions to the newest records of the clusters that its Kafka sources reach.

    Args:
        describe: Describes the cluster of a source.
        copy: A restored query that was not started.
        records: How many it has yet to read, over all partitions of a source, if there are so many.
    """
    batch = read_inventory(copy.checkpoint).committed
    log = offset_log.parse(copy.checkpoint.read(f"offsets/{batch}").decode())
    for source in copy.sources:
        if source.is_kafka:
            view = describe(source)
            share = max(1, records // max(1, len(view.partitions)))
            found = {partition: view.log_range(partition) for partition in sorted(view.partitions)}
            at = {
                partition: NextOffset(max(log_range.start, log_range.last_stable - share))
                for partition, log_range in found.items()
                if log_range is not None
            }
            log = log.with_kafka_offsets(source.key(log.version), Offsets(at))
    copy.checkpoint.write(f"offsets/{batch}", log.render().encode())


def step_back(describe: Describe, copy: JobQuery, records: int) -> None:
    """Move a copy's positions back, so that it reads its last records again.

    Args:
        describe: Describes the cluster of a source.
        copy: A copy that does not run.
        records: How many offsets to go back over all partitions of a source, where the log still has them.
    """
    batch = read_inventory(copy.checkpoint).committed
    log = offset_log.parse(copy.checkpoint.read(f"offsets/{batch}").decode())
    for source in copy.sources:
        if source.is_kafka:
            view, key = describe(source), source.key(log.version)
            before = log.kafka_offsets(key)
            share = max(1, records // max(1, len(before)))
            found = {partition: view.log_range(partition) for partition in before}
            at = {
                partition: NextOffset(min(offset, max(log_range.start, offset - share)))
                for partition, offset in before.items()
                if (log_range := found[partition]) is not None
            }
            log = log.with_kafka_offsets(key, Offsets({**before, **at}))
    copy.checkpoint.write(f"offsets/{batch}", log.render().encode())


@contextmanager
def own_scratch(driver: Driver) -> Iterator[str]:
    """Yield where this generation's copies go: a place of its own, empty; it is removed afterwards.

    Raises:
        PlaceOccupiedError: If something is there that is not this job's; it stays.
    """
    spark, run = driver.queries.spark, driver.driver_run
    location = location_of(run.claim.checkpoint_location)
    own_place(spark.open(location), driver.board, run.generation)
    # An earlier driver of this generation may have been killed in a rehearsal, and have left its copies.
    spark.clear(location, but=MARK_KEY)
    try:
        yield location
    finally:
        with suppress(Exception):  # the next driver removes it
            spark.remove(location, last=MARK_KEY)


def free_old(spark: Spark, board: JobBoard, repository: SavepointRepository, driver_run: DriverRun) -> None:
    """Free the checkpoints of generations before this one that no caller may reach: on HDFS, on this disk.

    Only beside its own checkpoint, whose place a caller has confirmed.
    """
    beside = driver_run.claim.checkpoint_location.rstrip("/").rpartition("/")[0]

    def clear(location: str, store: ObjectStore) -> None:
        if spark.needs_hadoop(location):
            spark.remove(location, last=MARK_KEY)
        else:
            remove_all(location, store)

    place = CheckpointAccess(open=spark.open, remove=clear, vouch=lambda _: None)
    try:
        planned = plan_checkpoints(board, repository)
        own = [one for one in planned if one.location.rpartition("/")[0] == beside]
        free_checkpoints(board, own, place, dry_run=False)
    except Exception:  # it only takes up room
        log.warning("Checkpoints of generations before %d may remain", driver_run.generation, exc_info=True)


def remove_leftovers(spark: Spark, board: JobBoard, driver_run: DriverRun) -> None:
    """Remove the copies of drivers that died in a rehearsal since the run that this one follows.

    A drill may be under way, which does not depend on the takeover: this waits for its end.
    """
    for number in range((driver_run.claim.follows or 0) + 1, driver_run.generation + 1):
        generation = type(driver_run.generation)(number)
        try:
            claim = board.claim(generation)
            if claim is not None and claim.rehearse is not None:
                if claim.is_drill and generation != driver_run.generation:
                    wait_until_silent(
                        board, generation, claim.lease_s, check=lambda: None, clock=driver_run.clock
                    )
                location = location_of(claim.checkpoint_location)
                if is_own(spark.open(location), board):
                    spark.remove(location, last=MARK_KEY)
        except Exception:  # it only takes up room
            log.warning("The scratch copy of generation %d may remain", generation, exc_info=True)
