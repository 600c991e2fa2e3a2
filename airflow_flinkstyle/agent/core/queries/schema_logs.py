"""Delta's logs of schemas (``schemaTrackingLocation``): where scripts read them, where queries keep them.

Delta reads such a log twice: when the script loads the table, and when the query starts, then below the
query's checkpoint only. When the table is loaded the query has no name yet. So each load reads a copy of the
log that the query is to continue with, in a folder of this driver, and each start is told the real place.
What was loaded and what was restored must be the same.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.board import takeover
from airflow_flinkstyle.agent.core.errors import SchemaLogError
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
        """By the folder that a load was given: the log's name, and what was in it."""

    def at_load(self, location: str) -> str:
        """Return where a reader is to look for the log that the script keeps at ``location``."""
        name = location.rstrip("/").rpartition("/")[2]
        folder = Path(tempfile.mkdtemp(prefix="flinkstyle-schema-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        entries = self._to_go_on_with(name)
        for path, content in entries.items():
            place = folder / name / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        found = f"file://{folder / name}"
        self._loaded[found] = name, entries
        return found

    def at_start(self, query: JobQuery) -> None:
        """Tell the sources of a query where their logs are: below its checkpoint, where savepoints look."""
        for source in query.sources:
            for location in schema_locations(source.options, source.provider).values():
                name, entries = self._loaded.get(location, (location.rstrip("/").rpartition("/")[2], {}))
                query.schema_logs[name] = entries
                kept = f"{query.location}/{schema_tracking.FOLDER}{name}"
                query.start.follow_schema(source, kept)

    def require_same(self, query: JobQuery) -> None:
        """Check that the script has read its tables by the logs that the query continues with.

        Raises:
            SchemaLogError: If it has read them by older ones, or by none.
        """
        for name, loaded in query.schema_logs.items():
            kept = _newest(_log_in(query.checkpoint, name))
            if any(not _says(_newest(loaded), table, content) for table, content in kept.items()):
                raise SchemaLogError.moved(query.name, name)

    def _to_go_on_with(self, name: str) -> Log:
        order = takeover.signed_order(self._board, self._driver_run)
        savepoint_id = order.savepoint_id if order else self._driver_run.claim.prepare_savepoint_id
        if self.is_ours or savepoint_id is None:
            names = self._queries.names_in_checkpoint()
            return _one({query: _log_in(self._queries.checkpoint(query), name) for query in names}, name)
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
        return _one(logs, name)


def _log_in(checkpoint: ObjectStore, name: str) -> Log:
    prefix = f"{schema_tracking.FOLDER}{name}/"
    paths = [info.key for info in checkpoint.list(prefix) if schema_tracking.is_entry(info.key)]
    return {path.removeprefix(prefix): checkpoint.read(path) for path in paths}


def _one(logs: Mapping[str, Log], name: str) -> Log:
    """Return the log that the queries of a job have under a name: of each table one.

    Raises:
        SchemaLogError: If two of them follow one table, and are not equally far.
    """
    found: dict[str, bytes] = {}
    for query, log in sorted(logs.items()):
        said = _newest(found)
        if any(table in said and not _says(said, table, content) for table, content in _newest(log).items()):
            raise SchemaLogError.ambiguous(query, name)
        found = {**log, **found}
    return found


def _newest(log: Log) -> dict[str, bytes]:
    """Return the newest entry by table."""
    numbers: dict[str, int] = {}
    for path in log:
        table, _, number = path.rpartition("/")
        numbers[table] = max(int(number), numbers.get(table, 0))
    return {table: log[f"{table}/{number}"] for table, number in numbers.items()}


def _says(newest: Mapping[str, bytes], table: str, content: bytes) -> bool:
    return table in newest and schema_tracking.same_schema(newest[table], content)
