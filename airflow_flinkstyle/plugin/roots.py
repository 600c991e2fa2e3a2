"""The savepoint roots of the page, by connection: the reader of each, and the clients of its jobs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.shared_roots import RenewedHook
from airflow_flinkstyle.plugin.cache.root_watch import RootWatch
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.breaker import Breaker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.hooks.page_roots import PageRoot
    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.storage.base import ObjectInfo, ObjectStore, Versioned


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRoot:
    """One savepoint root."""

    page: PageRoot
    watch: RootWatch
    """Reads it once for all viewers."""
    breaker: Breaker = field(default_factory=Breaker)
    """Stops calls to its store once that does not answer."""
    team: str | None = None
    """The team whose connections are read: that of the root's DAG; None for the connections of all."""

    def hook(self) -> StreamingJobHook:
        """Return a hook on the connection as it is now."""
        return hook_of(self.page.conn_id, self.breaker, self.team)

    def client(self, job: str) -> JobClient:
        """Return a client of a job that verifies signatures; each object is read once, and counted."""
        store: Any = MemoStore(self.watch.store(self.watch.views))
        own = self.hook().client(job)
        return replace(
            own,
            view=replace(own.view, board=JobBoard(store, job), repository=SavepointRepository(store, job)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """All of the page."""

    pages: Mapping[str, PageRoot]
    fault: FlinkstyleError | None = None
    """Why the setting cannot be used."""
    _made: dict[tuple[str, str | None], OpenRoot] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def root(self, conn_id: str, team: str | None = None) -> OpenRoot:
        """Return a root as a team's connections lead to it; made once, and not opened yet."""
        with self._lock:
            if (conn_id, team) not in self._made:
                self._made[conn_id, team] = _root(self.pages[conn_id], team)
            return self._made[conn_id, team]


def _root(page: PageRoot, team: str | None) -> OpenRoot:
    breaker = Breaker()
    renewed = RenewedHook(page.conn_id, breaker, team)
    watch = RootWatch(lambda: _store_of(renewed, page.conn_id, team), breaker=breaker)
    return OpenRoot(page=page, watch=watch, breaker=breaker, team=team)


def hook_of(conn_id: str, breaker: Breaker, team: str | None) -> StreamingJobHook:
    """Return a hook on a connection; nothing is read yet."""
    from airflow_flinkstyle.hooks.job import StreamingJobHook

    return StreamingJobHook(conn_id, breaker=breaker, team=team)


def _store_of(renewed: RenewedHook, conn_id: str, team: str | None) -> ObjectStore:
    from airflow_flinkstyle.hooks.errors import ConnectionMissingError

    try:
        return renewed.hook.store
    except ConnectionMissingError:
        raise BadInputError(
            f"A connection {conn_id} of type flinkstyle was expected{_for(team)}, found none.",
            state_after="No job can be shown.",
            remedy="Add the connection, or name another one in [flinkstyle] page.",
        ) from None


def _for(team: str | None) -> str:
    return f", of team {team} or of none" if team else ""


class MemoStore:
    """Passes calls on, and reads each object and listing once; made for one answer."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._objects: dict[str, Versioned | None] = {}
        self._listings: dict[tuple[str, str], list[ObjectInfo]] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
        """Return content and version, as read first."""
        if key not in self._objects:
            self._objects[key] = self._store.get(key)
        found = self._objects[key]
        return None if found is not None and found.version == unless else found

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """List, as listed first."""
        key = (prefix, after)
        if key not in self._listings:
            self._listings[key] = list(self._store.list(prefix, after=after))
        return iter(self._listings[key])
