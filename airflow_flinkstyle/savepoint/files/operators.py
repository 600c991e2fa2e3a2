"""Remove stateful operators from a query, for a version of it that no longer has them.

Spark numbers the operators in the order of the plan, so those after a removed one get lower numbers.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.checkpoint import commit_log, operator_metadata
from airflow_flinkstyle.savepoint.files.derive import changed_file

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_flinkstyle.savepoint.manifest import FileEntry, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

_STATE: Final = re.compile(r"state/(?P<operator>\d+)/(?P<rest>.+)")


def without_operators(
    query: QuerySnapshot, dropped: Collection[int], repository: SavepointRepository
) -> QuerySnapshot:
    """Return the query without these operators; call it only inside ``publish_derived``'s ``change``.

    The state of the others stays the same byte for byte.
    """
    files: list[FileEntry] = []
    for entry in query.files:
        match = _STATE.fullmatch(entry.path)
        if entry.path == f"commits/{query.batch_id}":
            files.append(_commit(entry, dropped, repository))
        elif match is None:
            files.append(entry)
        elif (operator := int(match["operator"])) not in dropped:
            files.append(_moved(entry, number_after(operator, dropped), match["rest"], repository))
    return replace(query, files=tuple(sorted(files, key=lambda entry: entry.path)))


def number_after(operator: int, dropped: Collection[int]) -> int:
    """Return the new number of an operator that stays, without the dropped ones."""
    return operator - sum(number < operator for number in dropped)


def _moved(entry: FileEntry, number: int, rest: str, repository: SavepointRepository) -> FileEntry:
    path = f"state/{number}/{rest}"
    if path == entry.path or not operator_metadata.is_metadata(entry.path):
        return replace(entry, path=path)
    content = operator_metadata.renumbered(entry.path, repository.read_file(entry), number)
    return changed_file(repository, path, content)


def _commit(entry: FileEntry, dropped: Collection[int], repository: SavepointRepository) -> FileEntry:
    """Return the commit log, which names the stores' files by operator in checkpoint format 2."""
    log = commit_log.parse(repository.read_file(entry).decode())
    if not log.state_unique_ids:
        return entry
    kept = {
        str(number_after(int(operator), dropped)): ids
        for operator, ids in log.state_unique_ids.items()
        if int(operator) not in dropped
    }
    changed = log.without_state_ids()
    if kept:
        changed = changed.with_state_ids(kept)
    return changed_file(repository, entry.path, changed.render().encode())
