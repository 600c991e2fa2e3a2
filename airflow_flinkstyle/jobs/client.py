"""``JobClient``: one job, seen by a caller, in its parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.relaunch import JobDrivers
from airflow_flinkstyle.jobs.request import JobRequests
from airflow_flinkstyle.jobs.start.starts import JobStarts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from airflow_flinkstyle.jobs.view import JobView


@dataclass(kw_only=True)
class JobClient:
    """One job, seen by a caller; holds no state that a retry would miss."""

    view: JobView
    """Its records, and what its drivers are doing."""
    kafka_logins: Callable[[Collection[str]], Mapping[str, str]] | None = None
    """See ``JobDrivers``."""
    asked_by: Mapping[str, str] = field(default_factory=dict)
    """See ``JobStarts``."""

    @cached_property
    def drivers(self) -> JobDrivers:
        """Its driver processes: relaunched, waited for, ended."""
        return JobDrivers(view=self.view, kafka_logins=self.kafka_logins)

    @cached_property
    def starts(self) -> JobStarts:
        """Starts of its runs."""
        return JobStarts(view=self.view, drivers=self.drivers, asked_by=self.asked_by)

    @cached_property
    def requests(self) -> JobRequests:
        """Requests to its driver: savepoints and stops."""
        return JobRequests(view=self.view, starts=self.starts)
