"""What the triggers of a triggerer share of a savepoint root: clients, threads, whether its store answers.

A triggerer has one pool of threads for the triggers of all providers, and a trigger's client of a store costs
a tenth of a second to make. A triggerer works for one team only, so a connection's id names one root.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.hooks.airflow_versions import in_thread
from airflow_flinkstyle.hooks.store_threads import StoreThreads
from airflow_flinkstyle.storage.breaker import Breaker

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.hooks.job import StreamingJobHook

P = ParamSpec("P")
T = TypeVar("T")
MOST_THREADS: Final = 4
"""How many ask one root's store at a time."""
RENEWED_S: Final = 60.0
"""How long a connection is used before it is read again."""


class RenewedHook:
    """A hook on a connection, which is read again after a while: the same one while nothing has changed."""

    def __init__(self, conn_id: str, breaker: Breaker, team: str | None = None) -> None:
        self._conn_id, self._breaker, self._team = conn_id, breaker, team
        self._lock, self._read_s = threading.Lock(), float("-inf")
        self._hook: StreamingJobHook | None = None

    @property
    def hook(self) -> StreamingJobHook:
        """The hook, for threads: it reads connections."""
        from airflow_flinkstyle.hooks.job import StreamingJobHook

        with self._lock:
            if self._hook is None or time.monotonic() - self._read_s > RENEWED_S:
                renewed = StreamingJobHook(self._conn_id, breaker=self._breaker, team=self._team)
                if self._hook is None or not _are_equal(self._hook, renewed):
                    self._hook = renewed
                self._read_s = time.monotonic()
            return self._hook


class SharedRoot:
    """One savepoint root, by the connection that names it."""

    def __init__(self, conn_id: str) -> None:
        self._breaker, self._threads = Breaker(), StoreThreads(f"flinkstyle {conn_id}", MOST_THREADS)
        self._renewed = RenewedHook(conn_id, self._breaker)

    @property
    def hook(self) -> StreamingJobHook:
        """A hook for threads: it reads connections. Calls to their stores end within seconds."""
        return self._renewed.hook

    @property
    def is_paused(self) -> bool:
        """Whether its store has not answered, so that no request is made for a while."""
        return not self._breaker.may_ask

    async def ask(self, function: Callable[[], T]) -> T | None:
        """Call it in one of the root's threads; None without a call while the root is paused."""
        if self.is_paused:
            return None
        return await self.call(lambda: None if self.is_paused else function())

    async def call(self, function: Callable[[], T]) -> T:
        """Call it in one of the root's threads, also while the root is paused."""
        return await in_thread(function, threads=self._threads)


def _are_equal(known: StreamingJobHook, renewed: StreamingJobHook) -> bool:
    """Return whether the connections have not changed: then the clients of the stores are kept."""
    try:
        return all(
            getattr(known, name) == getattr(renewed, name)
            for name in ("defaults", "s3", "signer", "secret_env")
        )
    except FlinkstyleError:
        return False


_roots: dict[str, SharedRoot] = {}
_lock = threading.Lock()


def shared_root(conn_id: str) -> SharedRoot:
    """Return what this process shares of a connection's root."""
    with _lock:
        return _roots.setdefault(conn_id, SharedRoot(conn_id))
