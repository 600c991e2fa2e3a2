"""The line of a job's head, as ``current.json`` and the takeover orders record it.

``current.json`` repeats the newest driver's order, and that repeats the turns of its line: one request reads
a job's history. More requests are needed only while a caller holds the job, and for older turns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.protocol.errors import LINE
from airflow_flinkstyle.protocol.line import Line, Turn

if TYPE_CHECKING:
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.records import TakeoverOrder
    from airflow_flinkstyle.types import Generation


def read_line(board: JobBoard, *, back_to: int = 0) -> Line | None:
    """Return the line of the job's head; None before the first driver took over.

    Args:
        board: The job's records.
        back_to: The earliest generation that matters; turns before it may be left out.

    Raises:
        FlinkstyleError: ``LINE`` if the head's order is gone, or orders contradict each other.
    """
    slot = board.current()
    if slot is None:
        return None
    current = slot.value
    recorded = current.recorded if current.head == current.generation else None
    order = recorded.order if recorded is not None else board.takeover_order(current.head)
    if order is None:
        raise LINE.error(generation=current.head, found="none, although it took the job over")
    return _with_older(board, _line(current.head, order), back_to)


def placed(board: JobBoard, generation: Generation, order: TakeoverOrder) -> TakeoverOrder:
    """Return a takeover order with the turns of its generation's line.

    The generation that a savepoint was taken from counts only if this job's records have it: else the line
    begins with the savepoint, by name.
    """
    head, parent = read_line(board, back_to=generation), order.parent  # older turns are in older orders
    line = None
    if head is not None and parent.generation is not None:
        line = head if parent.generation == head.head else _line_of(board, parent.generation)
    if head is None or line is None:
        begun = replace(parent, generation=None, batches_run=0)
        return replace(
            order, parent=begun, turns=(Turn(generation=generation, parent=begun, rewind=order.rewind),)
        )
    return replace(order, turns=head.turns_of_next(generation, parent, order.rewind, line))


def _line_of(board: JobBoard, generation: Generation) -> Line | None:
    order = board.takeover_order(generation)
    return _line(generation, order) if order is not None else None


def _line(generation: Generation, order: TakeoverOrder) -> Line:
    return Line(head=generation, parent=order.parent, turns=order.turns)


def _with_older(board: JobBoard, line: Line, back_to: int) -> Line:
    """Add the turns that the head's order has no room for, as far as they matter and are recorded."""
    while not line.is_whole and line.turns[0].generation > back_to:
        oldest = line.turns[0]
        before = _line_of(board, oldest.parent.generation) if oldest.parent.generation is not None else None
        if before is None or not before.turns:
            break
        line = replace(line, turns=(*before.turns, *line.turns))
    return line
