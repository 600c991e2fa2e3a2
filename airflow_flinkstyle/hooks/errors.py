"""Errors that only Airflow's side raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError, ErrorKind, FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SHOWN = 10
"""How many jobs a message names before it only counts."""


class ConnectionMissingError(BadInputError):
    """A connection that is named does not exist."""

    code = "CONNECTION_MISSING"

    @classmethod
    def of(cls, conn_id: str) -> ConnectionMissingError:
        """Name the connection."""
        return cls(
            f"A connection {conn_id} was expected in Airflow, found none of that name.",
            state_after="Nothing was started or changed.",
            remedy="Create it (Admin > Connections, airflow connections add), or correct the name.",
        )


ROOT_DENIED = ErrorKind(
    code="ROOT_DENIED",
    means="A DAG may not act on the savepoint root that its code or its form names.",
    problem="DAG {dag_id} was expected among those that may act on the savepoint root of connection "
    "{conn_id}, found that {reason}.",
    state_after="Nothing was read or changed there.",
    remedy="Use a DAG that is made for that root (flinkstyle_conn_id={conn_id!r} in its code), or ask the "
    "owner of the connection to add {dag_id} to its field dags.",
    family=BadInputError,
)

ROTATION = ErrorKind(
    code="ROTATION",
    means="Savepoints of some of many jobs could not be rotated; those of the others were.",
    problem="The savepoints of {count} jobs were expected to be rotated, found {failed} that were not.\n"
    "{problems}",
    state_after="Those of the other {others} were. No job was stopped or changed.",
    remedy="What each job needs is in this task's log. A retry keeps the savepoints that were taken.",
)


def root_denied(conn_id: str, dag_id: str, allowed: Sequence[str] | None) -> FlinkstyleError:
    """Name the DAG, and those that may."""
    reason = f"those that may are {', '.join(allowed)}" if allowed else "it lists none for forms"
    return ROOT_DENIED.error(conn_id=conn_id, dag_id=dag_id, reason=reason)


def not_rotated(failed: Mapping[str, FlinkstyleError], count: int) -> FlinkstyleError:
    """Name the jobs, with the errors of the first ones; retryable if any of the errors is."""
    names = sorted(failed)
    lines = [f"{name}: {failed[name].code}: {failed[name].problem}" for name in names[:_SHOWN]]
    if len(names) > _SHOWN:
        lines.append(f"and {len(names) - _SHOWN} more")
    problems, others = "\n".join(lines), count - len(names)
    error = ROTATION.error(count=count, failed=len(names), problems=problems, others=others)
    error.retryable = any(failure.retryable for failure in failed.values())
    return error
