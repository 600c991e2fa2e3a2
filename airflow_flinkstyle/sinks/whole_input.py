"""Whether a task has been given all of its rows.

Spark hands them to the Python worker as a stream of Arrow batches. Arrow takes a connection that breaks off
between two batches for the end of the stream: so it looks when the JVM is killed, and when it cannot read on
(an executor is lost, and with it the rest of a shuffle). What came until then must not be committed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.sinks.errors import INPUT_CUT, SINK_CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from types import FrameType

T = TypeVar("T")


def whole(batches: Iterator[T]) -> Iterator[T]:
    """Yield what a task is given, and see at its end that Spark said so; to be read in the task's own thread.

    Behind the rows the JVM writes that there are no more, whatever the worker does meanwhile.

    Raises:
        FlinkstyleError: ``INPUT_CUT`` if the rows break off.
        FlinkstyleError: ``SINK_CONFIG`` if it cannot be told with this version of PySpark.
    """
    connection = _connection()
    yield from batches
    if not connection.peek(1):
        raise INPUT_CUT.error()


def _connection() -> BufferedReader:
    """Return what the worker reads from; PySpark shows it to nobody, but ``worker.main`` always has it."""
    frame: FrameType | None = sys._getframe()  # noqa: SLF001
    while frame is not None:
        if frame.f_code.co_name == "main" and "infile" in frame.f_code.co_varnames:
            found: BufferedReader = frame.f_locals["infile"]
            return found
        frame = frame.f_back
    raise SINK_CONFIG.with_text(
        "PySpark's worker was expected to read a task's rows in a function main(infile, ...), as 3.5 to 4.2 "
        "do, but no such function is running: whether all rows have come could not be told.",
        state_after="Nothing was written.",
        remedy="Use a version of PySpark that the package supports.",
    )
