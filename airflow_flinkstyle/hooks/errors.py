"""Errors that only Airflow's side raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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


class RootDeniedError(BadInputError):
    """A DAG may not act on the savepoint root that its code or its form names."""

    code = "ROOT_DENIED"

    @classmethod
    def of(cls, conn_id: str, dag_id: str, allowed: Sequence[str] | None) -> RootDeniedError:
        """Name the DAG, and those that may."""
        reason = f"those that may are {', '.join(allowed)}" if allowed else "it lists none for forms"
        return cls(
            f"DAG {dag_id} was expected among those that may act on the savepoint root of connection "
            f"{conn_id}, found that {reason}.",
            state_after="Nothing was read or changed there.",
            remedy=f"Use a DAG that is made for that root (flinkstyle_conn_id={conn_id!r} in its code), or "
            f"ask the owner of the connection to add {dag_id} to its field dags.",
        )


class RotationError(FlinkstyleError):
    """Savepoints of some of many jobs could not be rotated; those of the others were."""

    code = "ROTATION"
    _SHOWN: ClassVar = 10

    @classmethod
    def of(cls, failed: Mapping[str, FlinkstyleError], count: int) -> RotationError:
        """Name the jobs, with the errors of the first ones; retryable if any of the errors is."""
        names = sorted(failed)
        problems = "\n".join(
            f"{name}: {failed[name].code}: {failed[name].problem}" for name in names[: cls._SHOWN]
        )
        more = f"\nand {len(names) - cls._SHOWN} more" if len(names) > cls._SHOWN else ""
        error = cls(
            f"The savepoints of {count} jobs were expected to be rotated, found {len(names)} that were not.\n"
            f"{problems}{more}",
            state_after=f"Those of the other {count - len(names)} were. No job was stopped or changed.",
            remedy="What each job needs is in this task's log. A retry keeps the savepoints that were taken.",
        )
        error.retryable = any(failure.retryable for failure in failed.values())
        return error
