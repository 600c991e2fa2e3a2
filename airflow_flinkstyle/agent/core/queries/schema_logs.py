"""Delta's logs of schemas (``schemaTrackingLocation``): where scripts read them, where queries keep them.

Delta reads such a log twice: when the script loads the table, and when the query starts, then only below the
query's checkpoint. When the table is loaded the query has no name yet. So each load reads a copy of the log
that the query will continue with, in a folder of this driver, and each start gets the real place. The schemas
of the loaded log and of the restored one must be the same.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.board import takeover
from airflow_flinkstyle.agent.core.errors import SCHEMA_LOG_OLDER, SCHEMA_LOG_SHARED
from airflow_flinkstyle.agent.core.stream_options import schema_locations
from airflow_flinkstyle.checkpoint import schema_tracking

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.board.takeover import DriverRun
    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.queries.registry import Queries
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore

Log = Mapping[str, bytes]
"""Entries by ``_schema_log_<table>/<number>``."""


class SchemaLogs:
    """The logs of schemas of one driver's queries."""

    def __init__(
        self, board: JobBoard, repository: SavepointRepository, driver_run: DriverRun, queries: Queries
    ) -> None:
        self._board, self._repository = board, repository
        self._driver_run, self._queries = driver_run, queries
        seen = driver_run.seen
        self.is_ours = seen is not None and seen.value.generation == driver_run.generation
        """Whether the job runs in this generation's checkpoint already."""
        self._loaded: dict[str, tuple[str, Log]] = {}
        """Folder that a load was given -> the log's name and its entries."""

    def at_load(self, location: str) -> str:
        """Return where a reader finds the log that the script keeps at ``location``."""
        name = location.rstrip("/").rpartition("/")[2]
        folder = Path(tempfile.mkdtemp(prefix="flinkstyle-schema-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        entries = self._restorable_log(name)
        for path, content in entries.items():
            place = folder / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        copy = f"file://{folder / name}"
        self._loaded[copy] = name, entries
        return copy

    def at_start(self, query: JobQuery) -> None:
        """Let the sources of a query keep their logs below its checkpoint, where savepoints find them."""
        for source in query.sources:
            for location in schema_locations(source.options, source.provider).values():
                name, entries = self._loaded.get(location, (location.rstrip("/").rpartition("/")[2], {}))
                query.schema_logs[name] = entries
                kept = f"{query.location}/{schema_tracking.FOLDER}{name}"
                query.start.follow_schema(source, kept)

    def require_same(self, query: JobQuery) -> None:
        """Check that the script has read its tables by the logs that the query continues with.

        Raises:
            FlinkstyleError: ``SCHEMA_LOG`` if it has read them by older ones, or by none.
        """
        for name, loaded in query.schema_logs.items():
            kept = _newest(_log_in(query.checkpoint, name))
            if any(not _has_schema(_newest(loaded), table, content) for table, content in kept.items()):
                raise SCHEMA_LOG_OLDER.error(query=query.name, name=name)

    def _restorable_log(self, name: str) -> Log:
        order = takeover.signed_order(self._board, self._driver_run)
        savepoint_id = order.savepoint_id if order else self._driver_run.claim.prepare_savepoint_id
        if self.is_ours or savepoint_id is None:
            names = self._queries.names_in_checkpoint()
            return _merged({query: _log_in(self._queries.checkpoint(query), name) for query in names}, name)
        manifest = self._repository.read(savepoint_id)
        prefix = f"{schema_tracking.FOLDER}{name}/"
        logs = {
            query.name: {
                entry.path.removeprefix(prefix): self._repository.read_file(entry)
                for entry in query.files
                if entry.path.startswith(prefix) and schema_tracking.is_entry(entry.path)
            }
            for query in manifest.queries
        }
        return _merged(logs, name)


def _log_in(checkpoint: ObjectStore, name: str) -> Log:
    prefix = f"{schema_tracking.FOLDER}{name}/"
    paths = [info.key for info in checkpoint.list(prefix) if schema_tracking.is_entry(info.key)]
    return {path.removeprefix(prefix): checkpoint.read(path) for path in paths}


def _merged(logs: Mapping[str, Log], name: str) -> Log:
    """Return the log that the queries of a job have under a name, with the tables of all of them.

    Raises:
        FlinkstyleError: ``SCHEMA_LOG`` if two queries follow one table and have different schemas of it.
    """
    merged: dict[str, bytes] = {}
    for query, log in sorted(logs.items()):
        known = _newest(merged)
        newest = _newest(log).items()
        if any(table in known and not _has_schema(known, table, content) for table, content in newest):
            raise SCHEMA_LOG_SHARED.error(query=query, name=name)
        merged = {**log, **merged}
    return merged


def _newest(log: Log) -> dict[str, bytes]:
    """Return the newest entry by table."""
    numbers: dict[str, int] = {}
    for path in log:
        table, _, number = path.rpartition("/")
        numbers[table] = max(int(number), numbers.get(table, 0))
    return {table: log[f"{table}/{number}"] for table, number in numbers.items()}


def _has_schema(newest: Mapping[str, bytes], table: str, content: bytes) -> bool:
    return table in newest and schema_tracking.same_schema(newest[table], content)
