"""What nobody asks for any more of a job's records: reports of ended requests, and processes of ended runs.

A report is kept for as long as a task may be tried again that asked for it. Of a run that another one has
followed stay the claim, the takeover order and the last heartbeat: later starts decide by them (which batch
numbers were used, what ran behind a savepoint).
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.jobs.journal import open_since_ms
from airflow_flinkstyle.protocol.records import End, Progress
from airflow_flinkstyle.protocol.rehearsal_records import Rehearsal
from airflow_flinkstyle.savepoint.repository.folder_cache import read_folder
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.protocol.board import JobBoard

KEPT_MS: Final = 30 * 24 * 3600 * 1000
"""Far longer than clocks differ, and than a task is tried again."""
_THREADS = 16
_OF_PROCESSES: Final = ("request.json", "submit.json", "incarnations")
log = logging.getLogger(__name__)


def prune_records(board: JobBoard, *, now_ms: int) -> None:
    """Delete the records that nobody asks for any more.

    Nothing goes that is younger than ``KEPT_MS``, or than the beginning of a migration or upgrade that has
    not ended; nor the report of the request that is still in its slot, which is acted on without it.
    """
    opened_ms = open_since_ms(board.store, board.job)
    before_ms = min(now_ms - KEPT_MS, now_ms if opened_ms is None else opened_ms)
    old = (*_reports(board, before_ms), *_processes(board, before_ms))
    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="records") as pool:
        list(pool.map(board.store.delete, old))
    log.info("Job %s: %d old records of requests and processes deleted", board.job, len(old))


def _reports(board: JobBoard, before_ms: int) -> Iterator[str]:
    found = read_folder(board, "reports", _written_at_ms, unreadable=_left_alone)
    in_slot: dict[str, str | None] = {}
    for name, at_ms in sorted(found.items()):
        generation, _, report = name.partition("/")
        if at_ms >= before_ms:
            continue
        if generation not in in_slot:
            slot = board.request(Generation(int(generation)))
            in_slot[generation] = slot.value.request_id if slot is not None else None
        if report.rpartition(".")[0] != in_slot[generation]:
            yield f"{board.job}/reports/{name}.json"


def _written_at_ms(name: str, data: bytes) -> int:
    if name.endswith(".progress"):
        return Progress.from_bytes(data).at_ms
    if name.endswith("/rehearsal"):
        return Rehearsal.from_bytes(data).ended_at_ms
    return End.from_bytes(data).ended_at_ms


def _left_alone(name: str, error: FlinkstyleError) -> None:
    log.warning("Report %s is left where it is: %s", name, error.problem)


def _processes(board: JobBoard, before_ms: int) -> Iterator[str]:
    """Yield what tells of the processes of runs before the current one, which none of them can leave."""
    current = board.current()
    prefix = f"{board.job}/runs/"
    by_generation: dict[Generation, list[str]] = {}
    for info in board.store.list(prefix) if current is not None else ():
        number, _, rest = info.key.removeprefix(prefix).partition("/")
        if rest.partition("/")[0] in _OF_PROCESSES:
            by_generation.setdefault(Generation(int(number)), []).append(info.key)
    for generation, keys in by_generation.items():
        if current is not None and generation < current.value.generation:
            last = board.heartbeat(generation)
            if last is not None and last.value.written_at_ms < before_ms:
                yield from keys
