"""Errors that only Airflow's side raises."""

from __future__ import annotations

from airflow_flinkstyle.errors import BadInputError


class ConnectionMissingError(BadInputError):
    """A connection that is named does not exist."""

    code = "CONNECTION_MISSING"

    @classmethod
    def of(cls, conn_id: str) -> ConnectionMissingError:
        """Name it."""
        return cls(
            f"A connection {conn_id} was expected in Airflow, found none of that name.",
            state_after="Nothing was started or changed.",
            remedy="Create it (Admin > Connections, airflow connections add), or correct the name.",
        )
