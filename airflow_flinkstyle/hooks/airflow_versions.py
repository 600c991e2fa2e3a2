"""Names that moved between the versions of Airflow; everything else imports them from here.

Airflow 3.2 moved exceptions and configuration from its core to the Task SDK. Other names that this package
uses are at the same place from 3.1 to 3.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar

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
    )

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a trigger's function in a thread, where it may read connections.

    Before Airflow 3.2.2 the triggerer dies of ``asyncio.to_thread`` (apache/airflow#64620): a connection that
    is read in such a thread makes an event loop of its own, and takes answers that are for the triggerer's
    ("Response read out of order"). This thread knows the triggerer's loop, which then asks for it in turn.
    """
    return await sync_to_async(function, thread_sensitive=False)(*args, **kwargs)


__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "ParamValidationError",
    "conf",
    "in_thread",
]
