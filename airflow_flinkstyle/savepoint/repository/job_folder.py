"""What the parts of a repository need to know of it: whose it is, and in which store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import ObjectStore


class JobFolder(Protocol):
    """A job's folder below a savepoint root; ``SavepointRepository`` is one."""

    @property
    def store(self) -> ObjectStore:
        """The store at the savepoint root."""

    @property
    def job(self) -> str:
        """Name of the job, unique under the savepoint root."""
