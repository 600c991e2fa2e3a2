"""What one Spark task does for a batch: all of its shards side by side, from one stream of rows.

A lineage may have more shards than the job has cores. With a task for each, tasks would run in turns, and
each turn costs the start of a task and of a transaction; so a task writes several. Which shard a row belongs
to depends on its key alone, never on the number of tasks: that may change with every batch.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.sinks.errors import TransactionLeftOpenError, producers_pool_empty
from airflow_flinkstyle.sinks.marker import WRAP
from airflow_flinkstyle.sinks.producer import QUEUE_KIB
from airflow_flinkstyle.sinks.shard import ShardTransaction, ShardWritten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from airflow_flinkstyle.sinks.readable_records import ReadableRecords
    from airflow_flinkstyle.sinks.settings import SinkSettings
    from airflow_flinkstyle.sinks.shard import Chunk


class ProducerPool:
    """How many producers a worker has open at a time; none is kept for the next batch. Safe for threads.

    A producer kept would save its shard 27 ms: 17 in which it is initialised, 10 in which the marker is read.
    But only if the next batch brings the shard to the same worker, and Spark starts tasks where a core is
    free: with two workers that is every other time, with many hardly ever, and each miss leaves a producer
    behind that another worker fences. Initialising one for every batch is also what fences every earlier
    attempt of the shard and ends its transaction; and in a worker that waits, no transaction can be open.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._taken: list[str] = []

    @contextmanager
    def place(self, transactional_id: str, *, size: int) -> Iterator[None]:
        """Hold a place for one producer while the block runs.

        Args:
            transactional_id: Of the producer, for messages.
            size: Places that there are.

        Raises:
            FlinkstyleError: ``PRODUCERS_POOL_EMPTY`` if all are taken. To wait for one could last for ever:
                the tasks that hold them may wait for this one.
        """
        with self._lock:
            if len(self._taken) >= size:
                raise producers_pool_empty(transactional_id, size, self._taken)
            self._taken.append(transactional_id)
        try:
            yield
        finally:
            with self._lock:
                self._taken.remove(transactional_id)


WORKER = ProducerPool()
"""Of this process."""


T = TypeVar("T")


def tasks_for(shards: int, *, cores: int, pool_size: int) -> int:
    """Return over how many tasks to spread the shards of a batch: as few as use all cores.

    Args:
        shards: Of the lineage.
        cores: That the job has now.
        pool_size: Shards that a task writes at the same time, at most.

    Returns:
        A divisor of ``shards``: then Spark's own spreading of keys over so many tasks keeps shards whole.
    """
    wanted = min(cores, shards)
    fitting = (n for n in range(1, shards + 1) if shards % n == 0 and shards // n <= pool_size)
    return next(n for n in fitting if n >= wanted)


def shards_of_task(task: int, *, tasks: int, shards: int) -> range:
    """Return the shards whose rows Spark brings to a task."""
    return range(task, shards, tasks)


def write_shards(
    settings: SinkSettings,
    batch_id: int,
    shards: Sequence[int],
    plan: str,
    chunks: Iterator[Chunk],
    readable: ReadableRecords | None = None,
) -> list[ShardWritten]:
    """Write shards of a batch once, however often it is called.

    Args:
        settings: The sink.
        batch_id: Spark's; grows within a lineage.
        shards: Those of this task.
        plan: What the records are made with.
        chunks: Records of these shards; read at most once.
        readable: Records that the output holds already; they are not written again.

    Raises:
        FlinkstyleError: ``PRODUCERS_POOL_EMPTY`` if this process writes too many shards at the same time.
        FlinkstyleError: Of ``ShardTransaction``. Of shards that are not committed nothing is visible.
    """
    writing = {shard: ShardTransaction(settings, batch_id, shard, plan, readable) for shard in shards}
    with ExitStack() as stack:
        for shard in shards:
            place = WORKER.place(settings.transactional_id(shard), size=settings.producer_pool_size)
            stack.enter_context(place)
        threads = stack.enter_context(ThreadPoolExecutor(len(writing), thread_name_prefix="shard"))
        opening = [threads.submit(one.open, QUEUE_KIB // len(writing)) for one in writing.values()]
        try:
            chunk = next(chunks, None)  # the rows are made while the producers connect
            _all(opening)
            while chunk is not None:
                writing[chunk.shard].add(chunk)
                chunk = next(chunks, None)
            _all([threads.submit(one.pre_commit) for one in writing.values()])
            return _all([threads.submit(one.commit) for one in writing.values()])
        except BaseException:
            wait(opening)
            _all([threads.submit(one.abort) for one in writing.values()])
            raise


def _all(futures: Sequence[Future[T]]) -> list[T]:
    """Return all results, or raise an error once everything has ended: one that is final, if there is any."""
    wait(futures)
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise min(errors, key=_is_retryable)
    return [future.result() for future in futures]


def _is_retryable(error: BaseException) -> bool:
    return not isinstance(error, FlinkstyleError) or error.retryable


def summed(chunks: Iterable[Chunk], shards: Iterable[int]) -> dict[int, tuple[int, int]]:
    """Return records and digest of each shard as it would be written; nothing is written."""
    totals = dict.fromkeys(shards, (0, 0))
    for chunk in chunks:
        count, digest = totals[chunk.shard]
        totals[chunk.shard] = count + chunk.count, (digest + chunk.digest) % WRAP
    return totals


def final_answer(
    write: Callable[[], list[ShardWritten]], *, is_last: bool = False
) -> list[ShardWritten] | FlinkstyleError:
    """Return what became of a task's shards, or the error that no other attempt of the task can mend.

    Among these is a transaction that brokers have left open: the driver ends it, once no task writes any
    more. In the last attempt every error is returned: of one that is raised Spark passes on the text only,
    and the driver could not tell that the batch may be run again.

    Spark tries a task that fails several times. A driver that was frozen and wakes tries shards that were
    written long ago; each attempt would fence, in vain, the run that writes them now.
    """
    try:
        return write()
    except FlinkstyleError as error:
        if error.retryable and not is_last and not isinstance(error, TransactionLeftOpenError):
            raise
        return error


def written_by_all(
    answers: Iterable[list[ShardWritten] | FlinkstyleError], shards: int
) -> list[ShardWritten]:
    """Return the shards of a batch, or raise the error that one of its tasks ended with.

    Args:
        answers: Of each task that Spark ran; none at all if it knew beforehand that there are no rows.
        shards: Of the lineage.
    """
    written: list[ShardWritten] = []
    for answer in answers:
        if isinstance(answer, FlinkstyleError):
            raise answer
        written += answer
    if written and sorted(one.shard for one in written) != list(range(shards)):
        raise RuntimeError(f"{shards} shards were to be written, {written} were")
    return written
