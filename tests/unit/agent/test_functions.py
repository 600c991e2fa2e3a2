from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.functions import captured

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.agent.untyped import PySpark

target = "/out/1"
counted = 0


def to_target(batch: PySpark, batch_id: int) -> str:
    return f"{target}/{batch_id}"


def counts(batch: PySpark, batch_id: int) -> None:
    global counted
    counted += 1


def by_helper(batch: PySpark, batch_id: int) -> str:
    return to_target(batch, batch_id) if batch_id else by_helper(batch, 1)


def writer_to(path: str, sizes: list[int]) -> Callable[[PySpark, int], object]:
    return lambda batch, batch_id: [batch.save(path) for _ in sizes]


class Writer:
    def write(self, batch: PySpark, batch_id: int) -> None:
        """Write it."""


def test_function_made_anew_over_the_same_values_is_the_same() -> None:
    assert captured(writer_to("/out", [1])) == captured(writer_to("/out", [1]))
    assert captured(partial(to_target, "x")) == captured(partial(to_target, "x"))
    functions = [lambda batch, batch_id, path="/out": batch.save(path) for _ in range(2)]
    assert captured(functions[0]) == captured(functions[1])


def test_function_over_other_values_is_another_one() -> None:
    assert captured(writer_to("/out", [1])) != captured(writer_to("/out/2", [1]))
    assert captured(writer_to("/out", [1])) != captured(writer_to("/out", [2]))
    assert captured(partial(to_target, "x")) != captured(partial(to_target, "y"))
    assert captured(to_target) != captured(by_helper)
    functions = [lambda batch, batch_id, path=path: batch.save(path) for path in ("a", "b")]
    assert captured(functions[0]) != captured(functions[1])


def test_globals_count_as_they_were_at_the_start_and_through_helpers() -> None:
    global target
    before = captured(to_target), captured(by_helper)
    assert before == (captured(to_target), captured(by_helper))
    target = "/out/2"
    assert captured(to_target) != before[0]
    assert captured(by_helper) != before[1]


def test_what_a_function_counts_up_itself_does_not_count() -> None:
    before = captured(counts)
    counts(None, 0)
    assert captured(counts) == before


def test_any_other_object_is_the_same_only_if_it_is_that_very_one() -> None:
    writer = Writer()
    assert captured(writer.write) == captured(writer.write)
    assert captured(writer.write) != captured(Writer().write)
    table = object()
    assert captured(lambda *_: table) != captured(lambda *_: object())
    assert captured([table]) == captured([table])
    assert captured([table]) != captured([object()])
