"""What people read of every error: whole sentences, a first line that fits a log, once."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from typing import TYPE_CHECKING, Any

import pytest

import airflow_flinkstyle
from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.hooks.failures import in_a_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENDED = "what somebody else has said, with a full stop."
"""Given as each text: it ends as a sentence, in the middle of another one."""
MOST_CHARACTERS = 700
"""Of a first line, with texts of that length in it."""


def makers() -> Iterator[Any]:
    """Yield every classmethod that makes an error."""
    for module in pkgutil.walk_packages(airflow_flinkstyle.__path__, "airflow_flinkstyle."):
        if not module.name.endswith(".errors"):
            continue
        for kind in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(kind) and issubclass(kind, FlinkstyleError) and kind.__module__ == module.name:
                for name, found in vars(kind).items():
                    if isinstance(found, classmethod):
                        yield pytest.param(getattr(kind, name), id=f"{kind.__name__}.{name}")


def some(annotation: str) -> Any:  # noqa: ANN401
    """Return a value of an annotation."""
    if annotation.startswith(("str", "object")):
        return ENDED
    if annotation.startswith(("int", "float", "BatchId")):
        return 3
    if annotation == "range":
        return range(3, 5)
    inner = annotation.partition("[")[2].rpartition("]")[0]
    if annotation.startswith("Mapping"):
        return {("orders", 0): 3}
    if inner.startswith("tuple"):
        return [("orders", 0)]
    if inner == "PartitionMove":
        return []
    if annotation.startswith(("Iterable", "Sequence", "Collection", "tuple")):
        return [some(inner.partition(",")[0])]
    if annotation == "FlinkstyleError":
        return BadInputError(ENDED, ENDED, ENDED)
    raise AssertionError(f"Give {annotation} a value here.")


@pytest.mark.parametrize("make", [*makers()])
def test_every_error_is_whole_sentences_that_fit_a_log(make: Callable[..., FlinkstyleError]):
    given = {
        name: some(str(parameter.annotation))
        for name, parameter in inspect.signature(make).parameters.items()
    }
    error = make(**given)
    for text in (error.problem, error.state_after, error.remedy, str(error)):
        assert text.strip()
        assert not re.search(r"(?<!\.)\.\.(\s|$)", text), text
        assert not text.rstrip().endswith(":"), f"nothing behind it: {text}"
    lines = in_a_block(error).splitlines()
    assert [line.split(": ")[0] for line in lines] == [error.code, "Now", "Next"]
    assert len(lines[0]) <= MOST_CHARACTERS


def test_sentence_that_ends_in_anothers_full_stop_has_one():
    error = FlinkstyleError("It failed: It is gone.. So.", "See ../x and ... so on.", "Go to a/.. now")
    assert str(error) == "It failed: It is gone. So. See ../x and ... so on. Go to a/.. now"
