"""What has become of a request, as whoever asked sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.protocol.records import Outcome, Progress


@dataclass(frozen=True, slots=True)
class InProgress:
    """The request has not ended; ``progress`` is None until the driver has shown some."""

    progress: Progress | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The request has ended; a stop's ``done`` was read from the heartbeat's ``closed``."""

    outcome: Outcome
    savepoint_id: str | None
    detail: str
    batches: Mapping[str, int]
    transient: bool = False
    """It failed for a reason that may pass: who asks again gets a new request."""
    savepoint_error: str | None = None
    """Why a stop has no savepoint that was asked for one, and may stop without."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The driver process that was asked is not there any more and never will answer."""

    reason: str


RequestState = InProgress | Ended | Lost


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The request was taken back before it had an effect; a late sender finds its slot closed."""


@dataclass(frozen=True, slots=True)
class TooLate:
    """The driver had accepted the stop, or had ended the request, before."""
