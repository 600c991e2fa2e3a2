"""What people read of every error: whole sentences, a first line that fits a log, once."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import pkgutil
import re
import traceback
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

import pytest

import airflow_flinkstyle
from airflow_flinkstyle.errors import BadInputError, ErrorKind, FlinkstyleError
from airflow_flinkstyle.hooks.failures import in_a_block
from airflow_flinkstyle.savepoint.errors import BATCH_MISMATCH, SavepointError
from tools import codes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ENDED = "what somebody else has said, with a full stop."
"""Given as each text: it ends as a sentence, in the middle of another one."""
MOST_CHARACTERS = 700
"""Of a first line, with texts of that length in it."""


def makers() -> Iterator[Any]:
    """Yield every classmethod and every function that makes an error."""
    for module in pkgutil.walk_packages(airflow_flinkstyle.__path__, "airflow_flinkstyle."):
        if not module.name.endswith(".errors"):
            continue
        for name, kind in vars(importlib.import_module(module.name)).items():
            if inspect.isclass(kind) and issubclass(kind, FlinkstyleError) and kind.__module__ == module.name:
                for method, found in vars(kind).items():
                    if isinstance(found, classmethod):
                        yield pytest.param(getattr(kind, method), id=f"{kind.__name__}.{method}")
            if inspect.isfunction(kind) and str(inspect.signature(kind).return_annotation).endswith("Error"):
                yield pytest.param(kind, id=name)


def fields_of(kind: ErrorKind) -> set[str]:
    """Return the names that the templates of a row want."""
    texts = (kind.problem, kind.state_after, kind.remedy)
    return {name for text in texts for _, name, _, _ in Formatter().parse(text) if name is not None}


class Some(str):
    """A text that any specification formats: a number, a text cut off."""

    def __format__(self, spec: str) -> str:
        return str(self)


def some(annotation: str) -> Any:  # noqa: ANN401
    """Return a value of an annotation."""
    if annotation.startswith(("str", "object", "SourceRef")):
        return ENDED
    if annotation.startswith(("int", "float", "BatchId")):
        return 3
    if annotation == "range":
        return range(3, 5)
    inner = annotation.partition("[")[2].rpartition("]")[0]
    if annotation == "Mapping[str, FlinkstyleError]":
        return {"orders": some("FlinkstyleError")}
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
    require_whole_sentences(make(**given))


@pytest.mark.parametrize("name", [name for name, kind in codes.rows().items() if kind.problem])
def test_every_row_of_a_table_is_whole_sentences_that_fit_a_log(name: str):
    kind = codes.rows()[name]
    error = kind.error(**{field: Some(ENDED) for field in fields_of(kind)})
    assert (error.code, error.retryable) == (kind.code, kind.transient)
    require_whole_sentences(error)


def test_every_error_of_a_row_is_given_exactly_the_fields_of_its_sentences():
    """A field that is missing would fail where the error is raised, on a path that few tests go."""
    rows = codes.rows()
    wrong = []
    for path in sorted(Path(*airflow_flinkstyle.__path__).rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match call:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="error"), keywords=given):
                    if name in rows and {one.arg for one in given} != fields_of(rows[name]):
                        wrong.append(f"{path.name}:{call.lineno}")
    assert wrong == []


def test_error_of_a_row_is_the_same_after_its_way_between_processes_and_when_rephrased():
    error = pickle.loads(pickle.dumps(BATCH_MISMATCH.error(location="s3://x", expected=1, found=2)))  # noqa: S301
    assert (type(error), error.code, error.retryable) == (SavepointError, "BATCH_MISMATCH", False)
    changed = error.rephrased(state_after="It runs on.")
    assert (changed.code, changed.problem, changed.state_after) == (error.code, error.problem, "It runs on.")
    shown = "".join(traceback.format_exception(changed))
    assert shown.endswith("(BATCH_MISMATCH)\n")


def require_whole_sentences(error: FlinkstyleError) -> None:
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
