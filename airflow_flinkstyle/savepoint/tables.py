"""How a sink's table is put back to where it was at a savepoint, without losing what others wrote. Pure.

What a job has written is known by the ids of its queries, which both formats note in each version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.savepoint.errors import TABLE_RESTORE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from airflow_flinkstyle.checkpoint.table_position import TableCommit
    from airflow_flinkstyle.savepoint.manifest import QuerySnapshot

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """What a job has written into a table since a savepoint."""

    now: int
    """The table's newest version, or its snapshot."""
    to: int
    """The version before the first one that the job has written since; ``now`` if it has written none."""
    commits: int
    """How many versions the job has written since."""
    rows: int | None
    """How many rows they have written; None if one does not say."""

    def __str__(self) -> str:
        """Describe it for people."""
        if self.to == self.now:
            return "no rows of this job since"
        rows = "an unknown number of" if self.rows is None else f"{self.rows:,}"
        return f"{rows} rows in {self.commits:,} versions of this job since"


def since_savepoint(query: QuerySnapshot, line: Iterable[TableCommit], own: Collection[str]) -> TableChange:
    """Return what a job has written into the table of a query since a savepoint.

    What others wrote before the job's first version since stays.

    Args:
        query: As the savepoint has it.
        line: The versions that the table is made of, the newest first.
        own: Every id that a query of this name has had in this job.

    Raises:
        FlinkstyleError: ``TABLE_RESTORE`` if others have written in between or later, or that is unknown.
    """
    where = f"The {query.sink} table of query {query.name}"
    if query.sink_table is None:
        raise TABLE_RESTORE.with_text(
            f"{where} was expected to have a version of its own in the savepoint, found none: the query had "
            "not written yet, or others wrote many versions since.",
        )
    since = []
    for commit in line:
        if commit.version == query.sink_table.version and commit.query_id in own:
            break
        since.append(commit)
    else:
        raise TABLE_RESTORE.with_text(
            f"{where} was expected to be made of {query.sink_table}, found that its history does not lead "
            "there: versions have expired, it was put back too far, or it is another table.",
        )
    return _change(where, query.sink_table.version, since[::-1], own)


def _change(where: str, saved: int, since: list[TableCommit], own: Collection[str]) -> TableChange:
    """Judge the versions after a savepoint, the oldest first."""
    now = since[-1].version if since else saved
    first = next((n for n, one in enumerate(since) if one.changes and one.query_id in own), None)
    if first is None:
        return TableChange(now=now, to=now, commits=0, rows=0)
    changed = [one for one in since[first:] if one.changes]
    others = [one for one in changed if one.query_id not in own]
    if others:
        named = ", ".join(f"{one.version} ({one.what})" for one in others[:_SHOWN])
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        raise TABLE_RESTORE.with_text(
            f"{where} was expected to have versions of this query only since the savepoint, found some of "
            f"others: {named}{more}. They would be lost.",
        )
    counts = [one.rows for one in changed]
    return TableChange(
        now=now,
        to=since[first - 1].version if first else saved,
        commits=len(changed),
        rows=None if None in counts else sum(filter(None, counts)),
    )
