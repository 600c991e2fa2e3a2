"""Which cases of a parametrised test a change waits for: others get the marker ``nightly`` or ``matrix``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


def nightly_but(
    kept: Callable[[T], bool], cases: Iterable[T], *, matrix: Callable[[T], bool] = lambda _: False
) -> list[Any]:
    """Return the cases, of which `make test` runs those that are ``kept`` and `make nightly` the others.

    Args:
        kept: Says of a case whether a contributor waits for it.
        cases: All of the test.
        matrix: Says of another case whether it is left to `make matrix`, as one more of its kind.

    Raises:
        ValueError: If none is kept: mark the test itself, then.
    """
    return _marked(kept, cases, "make test", matrix)


def matrix_but(kept: Callable[[T], bool], cases: Iterable[T]) -> list[Any]:
    """Return the cases of a nightly test, of which `make matrix` alone runs those that are not ``kept``.

    Raises:
        ValueError: If none is kept: the test would be in neither of the two commands that each change passes.
    """
    return _marked(kept, cases, "make nightly", lambda _: True)


def _marked(
    kept: Callable[[T], bool], cases: Iterable[T], command: str, matrix: Callable[[T], bool]
) -> list[Any]:
    found = [(case, kept(case)) for case in cases]
    if not any(stays for _, stays in found):
        raise ValueError(f"no case is kept for `{command}`")
    marks = pytest.mark
    return [
        case if stays else pytest.param(case, marks=marks.matrix if matrix(case) else marks.nightly)
        for case, stays in found
    ]
