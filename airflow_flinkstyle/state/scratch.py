"""The copy of a savepoint's query from which Spark reads, so that nothing else is touched."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.checkpoint import commit_log, offset_log
from airflow_flinkstyle.checkpoint.stores_in_use import SHUFFLE_PARTITIONS
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.state.errors import STATE_READ_SCRATCH_UNUSABLE
from airflow_flinkstyle.storage.keys import hadoop_location

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore

    OpenPlace = Callable[[str], ObjectStore]

_PARTITION: Final = re.compile(r"state/\d+/(?P<partition>\d+)/")


def temporary_scratch() -> str:
    """Return a new folder of this machine that is deleted when this process ends."""
    folder = tempfile.mkdtemp(prefix="flinkstyle-state-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def copy_query(
    manifest: Manifest,
    query: QuerySnapshot,
    repository: SavepointRepository,
    scratch: str,
    open_place: OpenPlace,
) -> tuple[str, bool]:
    """Copy what Spark reads of a query below ``scratch``; what is there already is kept.

    Args:
        manifest: The savepoint.
        query: One of its queries.
        repository: Where its files are.
        scratch: A location.
        open_place: Opens the store at a location.

    Returns:
        The copy's location as Spark writes it, and whether its state is of checkpoint format 2.
    """
    location = f"{scratch.rstrip('/')}/{manifest.job}/{manifest.savepoint_id}/{query.name}"
    target = open_place(location)
    if (place := target.local_path("metadata")) is not None:
        try:
            Path(place).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise STATE_READ_SCRATCH_UNUSABLE.error(location=location, why=str(error)) from error
    # Spark's repartition needs a log that ends with a committed batch.
    restore_query(manifest, replace(query, planned_offsets=None), repository, target)
    _make_readable(target, query)
    commit = commit_log.parse(target.read(f"commits/{query.batch_id}").decode())
    return hadoop_location(location), bool(commit.state_unique_ids)


def _make_readable(target: ObjectStore, query: QuerySnapshot) -> None:
    """Name the number of partitions where Spark leaves it out (named sources): its reader needs it."""
    key = f"offsets/{query.batch_id}"
    log = offset_log.parse(target.read(key).decode())
    partitions = _partitions(query)
    if partitions and SHUFFLE_PARTITIONS not in log.confs:
        log = log.with_confs({**log.confs, SHUFFLE_PARTITIONS: str(partitions)})
        target.write(key, log.render().encode())


def _partitions(query: QuerySnapshot) -> int:
    """Return how many partitions the query's state has; 0 without any."""
    found = (_PARTITION.match(entry.path) for entry in query.files)
    return max((int(match["partition"]) + 1 for match in found if match), default=0)
