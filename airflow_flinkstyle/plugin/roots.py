"""The savepoint roots of the page, by connection: what is read of each, and what acts on it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.plugin.cache.memo_store import MemoStore
from airflow_flinkstyle.plugin.cache.root_watch import RootWatch
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.breaker import Breaker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.hooks.page_roots import PageRoot
    from airflow_flinkstyle.jobs.running.client import JobClient
    from airflow_flinkstyle.storage.base import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """One savepoint root."""

    page: PageRoot
    watch: RootWatch
    """Reads it once for everybody who looks."""
    breaker: Breaker = field(default_factory=Breaker)
    """Leaves its store alone once that does not answer."""

    def hook(self) -> StreamingJobHook:
        """Return a hook on the connection as it is now."""
        return hook_of(self.page.conn_id, self.breaker)

    def client(self, job: str) -> JobClient:
        """Return a client of a job that verifies signatures; each object is read once, and counted."""
        store: Any = MemoStore(self.watch.store(self.watch.views))
        own = self.hook().client(job)
        return replace(own, board=JobBoard(store, job), repository=SavepointRepository(store, job))


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """All of the page."""

    by_connection: Mapping[str, Root]
    fault: FlinkstyleError | None = None
    """Why the setting cannot be used."""

    @classmethod
    def of(cls, pages: Mapping[str, PageRoot]) -> Roots:
        """Return the roots of a setting; none is opened yet."""
        return cls(by_connection={conn_id: _root(page) for conn_id, page in pages.items()})


def _root(page: PageRoot) -> Root:
    breaker = Breaker()
    watch = RootWatch(lambda: _store_of(page.conn_id, breaker), breaker=breaker)
    return Root(page=page, watch=watch, breaker=breaker)


def hook_of(conn_id: str, breaker: Breaker) -> StreamingJobHook:
    """Return a hook on a connection; nothing is read yet."""
    from airflow_flinkstyle.hooks.job import StreamingJobHook

    return StreamingJobHook(conn_id, breaker=breaker)


def _store_of(conn_id: str, breaker: Breaker) -> ObjectStore:
    from airflow_flinkstyle.hooks.errors import ConnectionMissingError

    try:
        return hook_of(conn_id, breaker).store
    except ConnectionMissingError:
        raise BadInputError(
            f"A connection {conn_id} of type flinkstyle was expected, found none.",
            state_after="No job can be shown.",
            remedy="Add the connection, or name another one in [flinkstyle] page.",
        ) from None
