"""A Spark without a JVM, for the agent's core: a session, starts, and queries whose batches tests run."""

# ruff: noqa: ANN401
from __future__ import annotations

import json
import shutil
import threading
import uuid
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core.queries.registry import Queries
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.savepoint.capture.table_history import delta_line
from airflow_flinkstyle.storage.errors import ObjectExistsError
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_as_hadoop
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from airflow_flinkstyle.agent.core.spark import Describe, StreamingSource
    from airflow_flinkstyle.checkpoint.table_position import TableCommit, TablePosition
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.protocol.query_records import Pace, QueryStatus
    from airflow_flinkstyle.storage.base import ObjectStore


class SmallPlace(LocalStore):
    """What a script names, on this machine's disk."""

    @property
    def qualified(self) -> str:
        return self.uri.removeprefix("file://")


class SmallSpark:
    """A session; it has no catalog and no consumer groups, and moves no state."""

    version, application_id, default_format = "4.2.0", "app", "parquet"
    ui_url: str | None = None

    def __init__(self, describe: Describe | None = None) -> None:
        self.settings: dict[str, str] = {}
        self.beside: dict[str, str | None] = {}
        """Queries that were started past the agent: id -> name."""
        self.has_ended = False
        """Whether a query has ended since somebody has waited for one."""
        self.away = 0
        """How often its listeners were taken away."""
        self._describe = describe

    def setting(self, name: str, default: str = "") -> str:
        return self.settings.get(name, default)

    def given(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self.settings[name] for name in names if name in self.settings}

    def start_settings(self) -> Any:
        return SimpleNamespace(again=nullcontext)

    def require_executor_timeout(self) -> None:
        """Know no such time."""

    def open(self, location: str) -> ObjectStore:
        return open_as_hadoop(location)

    def needs_hadoop(self, location: str) -> bool:
        return False

    def open_by_hadoop(self, location: str) -> SmallPlace:
        return SmallPlace(_path(location))

    def clear(self, location: str, *, but: str) -> None:
        place = _path(location)
        for path in list(place.iterdir()) if place.is_dir() else ():
            if path.name != but:
                self.delete(path)

    def remove(self, location: str, *, last: str) -> None:
        self.clear(location, but=last)
        self.delete(_path(location))

    def delete(self, path: Path) -> None:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)

    def spelled(self, location: str) -> str:
        return location

    def whole(self, location: str) -> str | None:
        return str(_path(location))

    def table(self, name: str) -> None:
        """Have no tables."""

    def sink_table(self, kind: str, name: str | None, path: str | None) -> SmallTable:
        assert kind == "delta"
        assert path is not None
        return SmallTable(_path(path))

    def describe(self, source: StreamingSource) -> ClusterView:
        assert self._describe is not None, f"nothing here reads Kafka, not {source} either"
        return self._describe(source)

    def positions_at(self, source: StreamingSource, at_ms: int) -> Offsets:
        """Let a record's offset be its time."""
        ends = self.describe(source).ends
        return Offsets({tp: NextOffset(min(end, at_ms)) for tp, end in ends.items()})

    def group(self, source: StreamingSource, name: str) -> Any:
        """Return a group whose commits get nowhere."""

        def commit(_: Any) -> None:
            raise SmallSparkError("there is no Kafka here")

        return SimpleNamespace(name=name, commit=commit, lag=commit, close=lambda: None)

    def active(self) -> list[tuple[str, str | None]]:
        return list(self.beside.items())

    def without_listeners(self) -> AbstractContextManager[None]:
        self.away += 1
        return nullcontext()

    def has_seen_an_end(self) -> bool:
        return self.has_ended

    def forget_ends(self) -> None:
        self.has_ended = False

    def stand_in(self, name: str, query_id: str | None, begun: Callable[[], None]) -> Any:
        return SmallHandle(query_id or "", SmallRun())

    def asked_of(self, handle: Any) -> str:
        return ""

    def raised(self, error: Exception) -> bool:
        return isinstance(error, SmallSparkError)

    def on_shutdown(self, call: Callable[[], object]) -> Any:
        return SimpleNamespace(remove=lambda: None)

    def in_rocksdb(self, *_: Any) -> Any:
        raise NotImplementedError

    repartitioned = state_changed = compare = in_rocksdb


class SmallTable:
    """A Delta table as far as its log tells of it: versions without files."""

    vacuumed: str | None = None
    """A file that is gone, of all tables."""

    def __init__(self, folder: Path) -> None:
        self.store = LocalStore(folder)

    def commit(self, query_id: str | None = None, batch: int = 0, *, rows: int = 10) -> None:
        """Let a query, or somebody else, write."""
        txn = [{"txn": {"appId": query_id, "version": batch}}] if query_id is not None else []
        added = {"add": {"path": "a", "dataChange": True, "stats": json.dumps({"numRecords": rows})}}
        self._write([{"commitInfo": {"operation": "WRITE"}}, *txn, added])

    def line(self) -> Iterator[TableCommit]:
        return delta_line(self.store)

    def holds(self, position: TablePosition) -> bool:
        return position.table_id == self.store.uri

    def missing(self, version: int) -> str | None:
        return self.vacuumed

    def tags(self) -> set[str] | None:
        found = self.store.get("tags.json")
        return set(json.loads(found.data)) if found is not None else None

    def set_tags(self, add: Mapping[str, int], remove: Collection[str]) -> None:
        kept = sorted(((self.tags() or set()) - set(remove)) | add.keys())
        self.store.write("tags.json", json.dumps(kept).encode())

    def kept_for(self) -> str:
        return "a week"

    def put_back(self, version: int, *, now: int) -> None:
        info = {"operation": "RESTORE", "operationParameters": {"version": version, "timestamp": None}}
        self._write([{"commitInfo": info}])

    def _write(self, actions: Sequence[Mapping[str, Any]]) -> None:
        text = "\n".join(map(json.dumps, actions)).encode()
        while True:  # another writer may be faster
            number = sum(1 for _ in self.store.list("_delta_log/"))
            with suppress(ObjectExistsError):
                self.store.create(f"_delta_log/{number:020d}.json", text)
                return


class SmallSparkError(Exception):
    """What this Spark raises of a query that has failed; it may pass."""

    _origin: Any = None
    """Java's exception behind it."""

    @staticmethod
    def of_python(error: Exception) -> SmallSparkError:
        """Return what Spark makes of an error that a function of the script has raised."""
        kind = type(error).__name__
        text = f'Traceback (most recent call last):\n  File "/app/job.py", line 3, in f\n{kind}: {error}'
        found = SmallSparkError(f"[STREAM_FAILED] Query terminated with exception: {text}")
        python = SimpleNamespace(getName=lambda: PYTHON_EXCEPTION, getSuperclass=lambda: None)
        found._origin = SimpleNamespace(
            getClass=lambda: python, getCause=lambda: None, getMessage=lambda: text
        )
        return found


PYTHON_EXCEPTION = "org.apache.spark.api.python.PythonException"


class SmallRun:
    """One run of a query, and its own stop flag: it ends its batch, then looks at the flag."""

    def __init__(self, run_id: str = "run-1", *, in_batch: bool = False) -> None:
        self.run_id, self.in_batch = run_id, in_batch
        self.flagged, self.ended = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self.progress: list[Mapping[str, Any]] = []
        self.pace: Pace | None = None

    def try_set(self) -> bool:
        self.flagged.set()
        return True

    def sleeps(self) -> bool:
        return False

    def let_go(self) -> None:
        """Keep nothing."""

    def end(self) -> None:
        self.ended.set()


class SmallStream(SmallRun, threading.Thread):
    """One run of a query in a thread of its own, as Spark's: batch after batch until its flag is set.

    Args:
        batch: Runs one batch, or finds nothing to do; a batch that was begun is ended.
        once: For the batch that is planned only.
        pause_s: Between two batches.
    """

    def __init__(self, batch: Callable[[SmallStream], object], *, once: bool, pause_s: float) -> None:
        threading.Thread.__init__(self, name="stream execution", daemon=True)
        SmallRun.__init__(self, str(uuid.uuid4()))
        self.batch, self.once, self.pause_s = batch, once, pause_s
        self.interrupted = threading.Event()
        """It is told to end in the middle of a batch."""

    def run(self) -> None:
        """Run batches until it is told to stop; keep what one has failed of, as Spark does."""
        try:
            while not self.flagged.is_set():
                self.in_batch = True
                self.batch(self)
                self.in_batch = False
                if self.once:
                    return
                self.flagged.wait(self.pause_s)
        except Exception as error:  # noqa: BLE001
            self.error = error
        finally:
            self.in_batch = False
            self.ended.set()

    def end(self) -> None:
        self.flagged.set()
        self.interrupted.set()
        self.join()


class SmallHandle:
    """What a script holds of a query."""

    def __init__(self, query_id: str, run: Any) -> None:
        self.id, self.run = query_id, run

    @property
    def runId(self) -> str:
        return str(self.run.run_id)

    @property
    def isActive(self) -> bool:
        return not self.run.ended.is_set()


class SmallQuery:
    """A query that was started."""

    def __init__(self, handle: SmallHandle) -> None:
        self.handle = handle

    @property
    def id(self) -> str:
        return self.handle.id

    @property
    def run_id(self) -> str:
        return self.handle.runId

    @property
    def is_active(self) -> bool:
        return self.handle.isActive

    has_thread = is_active

    @property
    def is_triggered(self) -> bool:
        return bool(self.handle.run.in_batch)

    @property
    def failure(self) -> Exception | None:
        error: Exception | None = self.handle.run.error
        return error

    def stop_flag(self) -> Any:
        return self.handle.run

    def stop(self) -> None:
        self.handle.run.flagged.set()
        self.handle.run.end()

    def await_end(self, timeout_ms: int) -> bool:
        ended = bool(self.handle.run.ended.wait(timeout_ms / 1000))
        if self.failure is not None:
            raise self.failure
        return ended

    def pace(self) -> Pace | None:
        pace: Pace | None = self.handle.run.pace
        return pace

    def ended_at_ms(self, batch: int) -> int | None:
        return None

    def progress(self) -> Sequence[Mapping[str, Any]]:
        progress: Sequence[Mapping[str, Any]] = self.handle.run.progress
        return progress

    def stand_for(self, handle: SmallHandle) -> None:
        handle.run = self.handle.run


class SmallStart:
    """A start that a script asks for.

    Args:
        session: Its session.
        sources: Of its plan.
        run: Makes a run of the query; ``once`` for the batch that is planned only.
    """

    def __init__(
        self,
        session: SmallSpark,
        sources: tuple[StreamingSource, ...] = (),
        run: Callable[[ObjectStore, bool], Any] = lambda _checkpoint, _once: SmallRun(),
    ) -> None:
        self.session, self._sources, self._run = session, sources, run
        self.location = ""

    def sources(self) -> tuple[StreamingSource, ...]:
        return self._sources

    def place(self, name: str, location: str) -> None:
        self.location = location

    def follow_schema(self, source: StreamingSource, location: str) -> None:
        raise NotImplementedError

    def run(self, under: SmallHandle | None = None, *, once: bool = False) -> SmallQuery:
        checkpoint = self.session.open(self.location)
        handle = under or SmallHandle("", None)
        handle.id, handle.run = id_of(checkpoint), self._run(checkpoint, once)
        return SmallQuery(handle)

    def run_again(self, query: Any, *, trigger: Mapping[str, Any], once: bool, thread: Any) -> None:
        query.handle.run = self._run(self.session.open(self.location), once)

    def thread_settings(self) -> None:
        """Take nothing from the thread."""

    def try_out(
        self, name: str, location: str, output_mode: str, *, once: bool, rows: str | None = None
    ) -> SmallQuery:
        checkpoint = self.session.open(location)
        return SmallQuery(SmallHandle(id_of(checkpoint), self._run(checkpoint, once)))


def queries_at(root: object, before: Mapping[str, QueryStatus] | None = None) -> Queries:
    """Return the queries of a driver whose script has a session."""
    queries = Queries(str(root), before)
    queries.known_spark = SmallSpark()
    return queries


def id_of(checkpoint: ObjectStore) -> str:
    """Return the id of a query, and give it one as Spark does at its first start."""
    if checkpoint.head("metadata") is None:
        checkpoint.write("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
    return str(json.loads(checkpoint.read("metadata"))["id"])


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))
