"""What a rewind does with the tables that a job writes to, as far as a caller can tell: Delta, Iceberg."""

from __future__ import annotations

import logging
from functools import cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.stopped import last_run
from airflow_flinkstyle.protocol.table_records import TablesToRestore
from airflow_flinkstyle.savepoint.capture.table_history import LINES
from airflow_flinkstyle.savepoint.errors import TABLE_RESTORE
from airflow_flinkstyle.savepoint.sinks import TABLE_SINKS
from airflow_flinkstyle.savepoint.tables import TableChange, since_savepoint
from airflow_flinkstyle.storage.errors import ObjectExistsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.table_records import RestoredTable
    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.types import Generation

_MOST_READ: Final = 200
"""How many versions of a table are read at most: each is a request to its store."""
STAYS: Final = "stays, and its batches are written once more beside it (restore_tables='yes' takes it back)"
_UNTOUCHED: Final = "Nothing was started or stopped."
log = logging.getLogger(__name__)


def tables_to_restore(runs: JobView, manifest: Manifest) -> dict[str, tuple[str, ...]]:
    """Return each query that writes to a table, and every id that it has had in this job.

    Raises:
        BadInputError: If the savepoint has no such query.
        FlinkstyleError: ``TABLE_RESTORE`` if no run of this job had a query with the savepoint's id: what
            that query has written since may be another job's.
    """
    tables = [query for query in manifest.queries if query.sink in TABLE_SINKS]
    if not tables:
        raise BadInputError(
            f"restore_tables='yes' was expected with a savepoint of queries that write to Delta or Iceberg, "
            f"found none in {manifest.savepoint_id}.",
            state_after=_UNTOUCHED,
            remedy="Leave restore_tables out.",
        )
    ids = ids_in_job(runs)
    own = {query.name: ids.get(query.name, ()) for query in tables}
    for query in tables:
        if query.query_id not in own[query.name]:
            raise TABLE_RESTORE.with_text(
                f"Query {query.name} of savepoint {manifest.savepoint_id} was expected to have run in job "
                f"{runs.job}, found none with its id: what it has written may be another job's.",
                state_after=_UNTOUCHED,
            )
    return own


def write_tables_to_restore(
    runs: JobView, generation: Generation, own_ids: Mapping[str, tuple[str, ...]]
) -> None:
    """Write, once and signed, what a driver takes back from tables; before the order that it waits for.

    Raises:
        SignatureError: If a caller without the key has written it.
    """
    if not own_ids:
        return
    board, signer = runs.board, runs.signer
    place = board.tables_to_restore_place(generation)
    claimed = (board.claim_place(generation), runs.claim(generation))
    try:
        tables = signer.sign_for_driver(TablesToRestore(own_ids=own_ids), place, *claimed)
        board.create_tables_to_restore(generation, tables)
    except ObjectExistsError:
        signer.require_order(board.tables_to_restore_data(generation) or b"", place, *claimed)


def ids_in_job(runs: JobView) -> dict[str, tuple[str, ...]]:
    """Return every id that the job's queries have had, by their names; a request for each generation."""
    found: dict[str, set[str]] = {}
    for generation in runs.board.generations():
        slot = runs.board.heartbeat(generation)
        for name, query in slot.value.queries.items() if slot is not None else ():
            if query.query_id:
                found.setdefault(name, set()).add(query.query_id)
    return {name: tuple(sorted(ids)) for name, ids in found.items()}


def table_change(
    runs: JobView, query: QuerySnapshot, own: Callable[[], Mapping[str, Collection[str]]]
) -> TableChange | None:
    """Return what the job has written into a query's table since a savepoint; None if that is not read here.

    Args:
        runs: The job's runs.
        query: As the savepoint has it.
        own: Returns the ids that queries have had in the job, by their names.

    Raises:
        FlinkstyleError: ``TABLE_RESTORE`` if the table cannot be put back; or an error of its store.
    """
    _, heartbeat = last_run.last_run_and_heartbeat(runs)
    status = heartbeat.queries.get(query.name) if heartbeat is not None else None
    if status is None or status.writes is None or status.writes.path is None or query.sink_table is None:
        return None
    table = runs.open_checkpoint(status.writes.path)
    line = list(islice(LINES[query.sink_table.format](table), _MOST_READ))
    if len(line) == _MOST_READ and all(one.version != query.sink_table.version for one in line):
        return None
    return since_savepoint(query, line, own().get(query.name, ()))


def require_tables(runs: JobView, manifest: Manifest, *, restores: bool) -> None:
    """Log before a rewind what becomes of the job's tables; refuse a table that cannot be put back.

    It refuses before anything changes, whichever query writes to the table. For a table that the caller
    cannot read the driver decides, when the query starts.

    Args:
        runs: The job's runs.
        manifest: Of the savepoint.
        restores: Whether the tables are to be put back.

    Raises:
        FlinkstyleError: ``TABLE_RESTORE`` if ``restores``, and one cannot be put back.
    """
    own = cache(partial(ids_in_job, runs))  # read once, for the first table that can be read
    for query in manifest.queries:
        if query.sink in TABLE_SINKS:
            outcome = _table_outcome(runs, query, own, restores=restores)
            log.info("The %s table of query %s: %s", query.sink, query.name, outcome)


def _table_outcome(
    runs: JobView,
    query: QuerySnapshot,
    own: Callable[[], Mapping[str, Collection[str]]],
    *,
    restores: bool,
) -> str:
    """Describe what becomes of a query's table, with its number of rows, as far as it is known here."""
    becomes = "is taken back" if restores else STAYS
    try:
        change = table_change(runs, query, own)
    except Exception as error:  # a table that cannot be read here stops no start
        if isinstance(error, FlinkstyleError) and error.code == TABLE_RESTORE.code:
            if restores:
                raise error.rephrased(state_after=_UNTOUCHED) from error
            return f"what the job has written since {STAYS}; {error.problem}"
        change = None
    if change is None:
        return f"what the job has written since {becomes}; how much that is, only its driver sees"
    return f"{change}: that {becomes}" if change.commits else str(change)


def await_restored(runs: JobView, generation: Generation, *, timeout_s: float) -> dict[str, RestoredTable]:
    """Wait until the tables of the queries that the script has started are put back; return the results.

    Raises:
        FlinkstyleError: ``TABLE_RESTORE`` if a query runs whose table was not put back.
    """
    board = runs.board
    data = board.tables_to_restore_data(generation)
    if data is None:
        return {}
    names = TablesToRestore.from_bytes(data).own_ids
    wait = runs.waiting(timeout_s)
    while True:
        slot = board.heartbeat(generation)
        found = {name: done for name in names if (done := board.restored_table(generation, name)) is not None}
        running = slot.value.queries if slot is not None and slot.value.state == "running" else {}
        due = [name for name in names if name in running and not running[name].waiting and name not in found]
        failed = slot is not None and slot.value.state == "failed"
        if failed and slot is not None and slot.value.error is not None and names.keys() - found.keys():
            raise TABLE_RESTORE.with_text(
                f"Tables of generation {generation} were expected to be put back, found that it failed: "
                f"{slot.value.error[1]}",
                state_after="The job stands where the savepoint is.",
                remedy="Correct the cause and start from the savepoint again, as before.",
            )
        if not due:
            return found
        if not wait.again():
            raise TABLE_RESTORE.with_text(
                f"The tables of {', '.join(due)} were expected to be put back within {timeout_s:g} s, found "
                "no record of it.",
                state_after=f"Generation {generation} runs.",
                remedy="Look at the driver's log: a large table may take longer. A driver of an older "
                "airflow-flinkstyle leaves tables as they are: stop it.",
            )
