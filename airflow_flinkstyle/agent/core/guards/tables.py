"""Tables that a rewind puts back: checked before the takeover, put back after it, once.

Before the takeover no rows may be removed: if it fails, the run before continues, and has written them. Once
a query has started, the rows in its table are this generation's own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.board import takeover
from airflow_flinkstyle.agent.core.causes import passes
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.table_records import RestoredTable
from airflow_flinkstyle.savepoint.errors import TABLE_RESTORE, SinkSkipsError
from airflow_flinkstyle.savepoint.sinks import table_format
from airflow_flinkstyle.savepoint.tables import TableChange, since_savepoint

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.board.takeover import DriverRun
    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.spark import SinkTable
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.records import TakeoverOrder
    from airflow_flinkstyle.protocol.table_records import TablesToRestore
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

log = logging.getLogger(__name__)


class Tables:
    """The tables of one generation's queries."""

    def __init__(self, board: JobBoard, repository: SavepointRepository, driver_run: DriverRun) -> None:
        self._board, self._repository, self._driver_run = board, repository, driver_run
        self._asked: TablesToRestore | None = None
        self._saved: Manifest | None = None
        self._uses_ids_again = False
        self._checked: set[str] = set()
        """Queries whose tables have passed the checks that take a Spark job each: once is enough."""

    def obey(self, order: TakeoverOrder) -> None:
        """Read what the caller has asked for beside its order.

        Raises:
            SignatureError: If it was not signed with the caller's key.
        """
        self._asked = takeover.signed_tables(self._board, self._driver_run)
        if self._asked is not None and order.savepoint_id is not None:
            self._saved = self._repository.find(order.savepoint_id)
            self._uses_ids_again = order.rewind == "re-emit"

    def require_possible(self, query: JobQuery) -> None:
        """Require that the query's table can be put back, if that is asked for; changes nothing.

        Raises:
            FlinkstyleError: ``TABLE_RESTORE`` if it cannot, or not without losing what others wrote.
            SinkSkipsError: If the table would then leave out the batches that are run again.
        """
        if self._is_due(query):
            self._check(query)

    def restore(self, query: JobQuery) -> None:
        """Put the query's table back, if that is asked for and not done; after the takeover.

        An earlier driver may have died before or after it put the table back.

        Raises:
            FlinkstyleError: ``TABLE_RESTORE`` if it cannot be put back.
        """
        if not self._is_due(query):
            return
        table, change = self._check(query)
        if change.to != change.now:
            log.info("Query %s: putting its table back to version %d, %s", query.name, change.to, change)
            _put_back(query, table, change)
        done = RestoredTable(
            format=str(query.sink.name), found=change.now, put_back_to=change.to, rows=change.rows
        )
        self._board.create_restored_table(self._driver_run.generation, query.name, done)
        log.info("Query %s: %s", query.name, done)

    def _is_due(self, query: JobQuery) -> bool:
        if self._asked is None or query.name not in self._asked.own_ids or query.ran is not None:
            return False
        return self._board.restored_table(self._driver_run.generation, query.name) is None

    def _check(self, query: JobQuery) -> tuple[SinkTable, TableChange]:
        saved = self._saved.query(query.name) if self._saved is not None else None
        kind = table_format(query.sink.name)
        if self._asked is None or self._saved is None or saved is None or kind is None:
            found = f"that it writes to {query.sink.name}" if saved is not None else "no savepoint of it"
            raise TABLE_RESTORE.with_text(
                f"Query {query.name} was expected to write to its table of the savepoint, found {found}."
            )
        if kind == "delta" and self._uses_ids_again:
            raise SinkSkipsError.kept_by_restore(query.name, state_after="The table is as it was.")
        table = query.session.sink_table(kind, query.sink.table, query.sink.path)
        is_new = query.name not in self._checked
        readers = [
            one.name
            for one in self._saved.queries
            for place in one.tables.values()
            if is_new and table.holds(place)
        ]
        if readers:
            raise TABLE_RESTORE.with_text(
                f"The {kind} table of query {query.name} was expected to be read by no stream of this job, "
                f"found query {', '.join(readers)}, which would read what is taken back."
            )
        change = since_savepoint(saved, table.line(), self._asked.own_ids[query.name])
        gone = table.missing(change.to) if is_new and change.to != change.now else None
        if gone is not None:
            raise TABLE_RESTORE.with_text(
                f"Version {change.to} of the {kind} table of query {query.name} was expected to have all its "
                f"files, found {gone} deleted (VACUUM)."
            )
        self._checked.add(query.name)
        return table, change


def _put_back(query: JobQuery, table: SinkTable, change: TableChange) -> None:
    try:
        table.put_back(change.to, now=change.now)
    except FlinkstyleError:
        raise
    except Exception as error:
        failed = TABLE_RESTORE.with_text(
            f"The {query.sink.name} table of query {query.name} was expected to be put back to version "
            f"{change.to}, found: {str(error)[:500]}",
            state_after="The job is this driver's, at the savepoint; the query was not started.",
        )
        failed.retryable = passes(error)
        raise failed from error
