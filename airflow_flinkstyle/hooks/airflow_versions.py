"""Names that moved between the versions of Airflow; everything else imports them from here.

Airflow 3.2 moved exceptions and configuration from its core to the Task SDK. Other names that this package
uses are at the same place from 3.1 to 3.3.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

from asgiref.sync import sync_to_async

try:
    from airflow.sdk import conf
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
        ParamValidationError,
        TaskDeferralTimeout,
    )
except ImportError:  # Airflow 3.1
    from airflow.configuration import conf  # type: ignore[assignment]
    from airflow.exceptions import (  # type: ignore[attr-defined,no-redef]
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
        ParamValidationError,
        TaskDeferralTimeout,
    )

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


async def in_thread(function: Callable[[], T], *, threads: Any = None) -> T:  # noqa: ANN401 - see below
    """Call a trigger's function in a thread, where it may read connections.

    Args:
        function: A blocking call.
        threads: An ``Executor``; None for the one that the whole process shares.

    Before Airflow 3.2.2 the triggerer dies of ``asyncio.to_thread`` (apache/airflow#64620): a connection that
    is read in such a thread makes an event loop of its own, and takes answers that are for the triggerer's
    ("Response read out of order"). This thread uses the triggerer's loop, which sends its requests in turn.
    """
    return await sync_to_async(function, thread_sensitive=False, executor=threads)()


def connection_of_team(conn_id: str, team: str) -> Any:  # noqa: ANN401 - a connection of Airflow's core
    """Return a connection of a team, or of none, in a process that no task of the team runs in.

    The API server knows no team by itself; a task's process asks it, with the task's team.
    """
    from airflow.models.connection import Connection

    return Connection.get_connection_from_secrets(conn_id, team_name=team)


def airflow_stats(*, in_triggerer: bool = False) -> Any:  # noqa: ANN401 - Airflow's, of several versions
    """Return Airflow's metrics.

    Args:
        in_triggerer: From Airflow 3.2 on they must be opened there: the process that runs triggers has a
            copy of its own, which Airflow itself does not use.
    """
    try:
        from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
        from airflow.sdk.observability.stats import Stats
    except ImportError:  # Airflow 3.1: they open by themselves
        from airflow.stats import Stats

        return Stats
    if in_triggerer:
        stats_argument = [Stats] if signature(get_stats_factory).parameters else []  # 3.2
        legacy = {"export_legacy_names": False}
        options = legacy if legacy.keys() <= signature(Stats.initialize).parameters.keys() else {}
        Stats.initialize(factory=get_stats_factory(*stats_argument), **options)
    return Stats


__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "ParamValidationError",
    "TaskDeferralTimeout",
    "airflow_stats",
    "conf",
    "connection_of_team",
    "in_thread",
]
