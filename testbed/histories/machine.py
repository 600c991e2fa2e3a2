"""Virtual time, and processes that run one at a time: whoever sleeps lets the others run.

The package's own code waits by ``time``, renews leases in threads and copies files in pools. ``installed``
gives its modules ones of this machine instead, so that nothing depends on the clock or on luck.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import time
import uuid
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.savepoint import manifest_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

EPOCH_S = 1_790_000_000
"""When every history begins, in epoch seconds."""
_CLOCKS = (
    "airflow_flinkstyle.clock",
    "airflow_flinkstyle.savepoint.blobs.leases",
    "airflow_flinkstyle.savepoint.capture.take",
    "airflow_flinkstyle.savepoint.capture.query",
)
_POOLS = (
    "airflow_flinkstyle.jobs.retention",
    "airflow_flinkstyle.savepoint.blobs.garbage_collection",
    "airflow_flinkstyle.savepoint.capture.copier",
    "airflow_flinkstyle.savepoint.files.transfer",
    "airflow_flinkstyle.savepoint.repository.folder_cache",
    "airflow_flinkstyle.savepoint.repository.repository",
    "airflow_flinkstyle.savepoint.retention.checkpoints",
)
_THREADS = (
    "airflow_flinkstyle.agent.core.board.heartbeat",
    "airflow_flinkstyle.jobs.cutover.context",
    "airflow_flinkstyle.jobs.migration.context",
    "airflow_flinkstyle.jobs.stopped.offline_lock",
    "airflow_flinkstyle.savepoint.blobs.leases",
)


class DeadError(BaseException):
    """The process that runs was killed: not even its ``finally`` blocks reach anything any more."""


class Process:
    """What is killed, frozen, or told to fail as one; its clock may be wrong."""

    def __init__(self, name: str, host: str = "a", *, ahead_s: float = 0.0) -> None:
        self.name, self.host, self.ahead_s = name, host, ahead_s
        self.alive, self.frozen = True, False
        self.fault: Fault | None = None
        self.calls = 0
        self.tasks: list[greenlet] = []
        self.asleep: list[greenlet] = []
        """Tasks that are due and frozen."""


class Fault:
    """What happens at one call of a process to a store."""

    def __init__(self, kind: str, at: int) -> None:
        self.kind, self.at = kind, at
        """``fail``, ``lost`` (an answer to a write), ``die`` or ``freeze``; the call, from 1."""


class Machine:
    """One history's time and processes."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.random = random.Random(0)  # noqa: S311 - for ids
        self._due: list[tuple[float, int, greenlet]] = []
        self._turn = itertools.count()
        self._owner: dict[greenlet, Process] = {}
        self._main = getcurrent()

    @property
    def process(self) -> Process | None:
        """Return the process that runs; None for the history itself."""
        return self._owner.get(getcurrent())

    def spawn(self, process: Process, run: Callable[[], Any]) -> greenlet:
        """Let a process, or one more thread of it, run from the next moment on."""

        def body() -> None:
            with suppress(DeadError):
                run()

        task = greenlet(body, parent=self._main)
        self._owner[task] = process
        process.tasks.append(task)
        self._push(task, self.now_s)
        return task

    def _push(self, task: greenlet, at_s: float) -> None:
        heapq.heappush(self._due, (at_s, next(self._turn), task))

    def sleep(self, seconds: float) -> None:
        """Let everybody else run until so much later."""
        task = getcurrent()
        process = self._owner.get(task)
        if process is None:
            raise AssertionError("only processes sleep")
        if not process.alive:
            raise DeadError
        self._push(task, self.now_s + max(seconds, 0.0))
        self._main.switch()

    def point(self) -> None:
        """Count one more thing that a process does, which may be its last."""
        process = self._owner.get(getcurrent())
        if process is not None:
            self.call(process)

    def call(self, process: Process) -> str | None:
        """Let a process's fault happen if it is its time; returns what the store is to do about it."""
        if not process.alive:
            raise DeadError
        process.calls += 1
        fault = process.fault
        if fault is None or process.calls != fault.at:
            return None
        if fault.kind == "die":
            self.kill(process)
            raise DeadError
        if fault.kind == "freeze":
            self.freeze(process)
            return None
        return fault.kind

    def freeze(self, process: Process) -> None:
        """Stop a process; called by itself it does not return before ``thaw``."""
        process.frozen = True
        task = getcurrent()
        if self._owner.get(task) is process:
            process.asleep.append(task)
            self._main.switch()

    def thaw(self, process: Process) -> None:
        """Let a frozen process go on."""
        process.frozen = False
        for task in process.asleep:
            self._push(task, self.now_s)
        process.asleep.clear()

    def kill(self, process: Process) -> None:
        """End a process at once, in the middle of whatever it does."""
        process.alive = False
        here = getcurrent()
        for task in process.tasks:
            if task is not here and task:
                task.parent = here  # a task that has ended goes on in its parent: who kills it goes on
                task.throw(DeadError)
        process.asleep.clear()

    def run(self, until: Callable[[], bool], at_most_s: float) -> bool:
        """Let time pass until something is so, or for so long; returns whether it is."""
        end_s = self.now_s + at_most_s
        while not until():
            if not self._due or self._due[0][0] > end_s:
                self.now_s = max(self.now_s, end_s)
                return until()
            at_s, _, task = heapq.heappop(self._due)
            process = self._owner[task]
            if task.dead or not process.alive:
                self._owner.pop(task, None)
                continue
            self.now_s = max(self.now_s, at_s)
            if process.frozen:
                process.asleep.append(task)
                continue
            task.switch()
            if task.dead:
                self._owner.pop(task, None)
        return True

    def end(self) -> None:
        """Kill all processes."""
        for process in set(self._owner.values()):
            self.kill(process)
        self._due.clear()
        self._owner.clear()

    def ahead_s(self) -> float:
        """Return how far the clock of the process that runs is ahead."""
        process = self._owner.get(getcurrent())
        return process.ahead_s if process is not None else 0.0


class _Time:
    """The machine's ``time``."""

    CLOCK_BOOTTIME = 7
    gmtime, strftime = staticmethod(time.gmtime), staticmethod(time.strftime)

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.sleep = machine.sleep

    def monotonic(self) -> float:
        return self._machine.now_s

    def clock_gettime(self, _: int) -> float:
        return self._machine.now_s

    def time_ns(self) -> int:
        return int((EPOCH_S + self._machine.now_s + self._machine.ahead_s()) * 1e9)


class _Event:
    def __init__(self) -> None:
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set


class _Lock:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _threading(machine: Machine) -> SimpleNamespace:
    """Return a ``threading`` whose threads are tasks of the process that makes them."""

    class Event(_Event):
        def wait(self, timeout: float) -> bool:
            if not self._set:
                machine.sleep(timeout)
            return self._set

    class Thread:
        def __init__(self, *, target: Callable[[], Any], **_: object) -> None:
            self._target = target

        def start(self) -> None:
            process = machine.process
            if process is not None:
                machine.spawn(process, self._target)

    return SimpleNamespace(Event=Event, Thread=Thread, Lock=_Lock, get_ident=threading.get_ident)


class _Pool:
    """Does one thing behind the other."""

    def __init__(self, *_: object, **__: object) -> None:
        self._failed = False

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, do: Callable[..., Any], *each: Iterable[Any]) -> Iterator[Any]:
        return map(do, *each)

    def submit(self, do: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Do it at once; nothing more is begun after a failure."""
        done: Future[Any] = Future()
        if self._failed:
            done.cancel()
            return done
        try:
            done.set_result(do(*arguments))
        except Exception as error:  # noqa: BLE001  # as a thread's is, for who asks for it
            self._failed = True
            done.set_exception(error)
        return done

    def shutdown(self, **_: object) -> None: ...


_SETTINGS = {("airflow_flinkstyle.jobs.cutover.context", "_WINDOW_POLL_S"): 1.0}
"""A window is looked at every 50 ms, which finds nothing more here and takes most of the time."""
_KNOWN: dict[tuple[type, bytes], Any] = {}
_MOST_KNOWN = 20_000


def _known_from_bytes(cls: type[Any], data: bytes) -> Any:  # noqa: ANN401
    """Return a record that was read before, or read it: equal bytes are equal records, and frozen ones."""
    key = (cls, data)
    found = _KNOWN.get(key)
    if found is None:
        if len(_KNOWN) > _MOST_KNOWN:
            _KNOWN.clear()
        found = _KNOWN[key] = _READ(cls, data)
    return found


def _known_manifest(text: str) -> Any:  # noqa: ANN401
    """Return a manifest that was read before, or read it."""
    key = (str, text.encode())
    found = _KNOWN.get(key)
    if found is None:
        found = _KNOWN[key] = _READ_MANIFEST(text)
    return found


_READ = Record.from_bytes.__func__  # type: ignore[attr-defined]
_READ_MANIFEST = manifest_json.from_json


@contextmanager
def installed(machine: Machine) -> Iterator[None]:
    """Give the package's modules the time, threads and pools of a machine."""
    ours = {
        **{(name, "time"): _Time(machine) for name in _CLOCKS},
        **{(name, "threading"): _threading(machine) for name in _THREADS},
        **{(name, "ThreadPoolExecutor"): _Pool for name in _POOLS},
        **_SETTINGS,
        ("airflow_flinkstyle.savepoint.manifest_json", "from_json"): _known_manifest,
    }
    before = {place: getattr(import_module(place[0]), place[1]) for place in ours}
    made = uuid.uuid4

    def numbered() -> uuid.UUID:
        return uuid.UUID(int=machine.random.getrandbits(128), version=4)

    try:
        for (name, attribute), value in ours.items():
            setattr(import_module(name), attribute, value)
        uuid.uuid4 = numbered
        setattr(Record, "from_bytes", classmethod(_known_from_bytes))  # noqa: B010 - mypy knows better
        yield
    finally:
        uuid.uuid4 = made
        setattr(Record, "from_bytes", classmethod(_READ))  # noqa: B010
        for (name, attribute), value in before.items():
            setattr(import_module(name), attribute, value)
        machine.end()
