"""Threads that ask stores: a few for each savepoint root, apart from those that the process shares.

A call to a store that hangs returns after its time-outs, or never. So calls from the API server and from the
triggerer, where others need the shared threads, run in these.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Executor, Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from airflow_flinkstyle.storage.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")
IDLE_S: Final = 30.0


class StoreThreads(Executor):
    """At most ``most`` threads; the process does not wait for them when it ends."""

    def __init__(self, name: str, most: int, *, most_waiting: int | None = None) -> None:
        """Begin without a thread.

        Args:
            name: Of each thread.
            most: How many there are at a time.
            most_waiting: How many calls may wait for one; None for any number.
        """
        self._name, self._most, self._most_waiting = name, most, most_waiting
        self._changed = threading.Condition()
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads = self._idle = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Let a thread call it.

        Raises:
            StoreUnavailableError: If too many calls wait already.
        """
        future: Future[T] = Future()
        with self._changed:
            if self._most_waiting is not None and len(self._calls) >= self._most_waiting:
                raise StoreUnavailableError.during("be asked", self._name, "too many wait for its answer")
            self._calls.append((future, partial(fn, *args, **kwargs)))
            if len(self._calls) > self._idle and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            self._changed.notify()
        return future

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                has_call = self._changed.wait_for(lambda: self._calls, timeout=IDLE_S)
                self._idle -= 1
                if not has_call:
                    self._threads -= 1
                    return
                future, call = self._calls.popleft()
            _run(future, call)
            del future, call  # an idle thread keeps no answer


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - it is raised in the waiting caller
        future.set_exception(error)
    else:
        future.set_result(result)
