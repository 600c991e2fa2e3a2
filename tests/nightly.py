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
    found = [(case, kept(case)) for case in cases]
    if not any(stays for _, stays in found):
        raise ValueError("no case is kept for `make test`")
    return [case if stays else _later(case, matrix(case)) for case, stays in found]


def matrix_but(kept: Callable[[T], bool], cases: Iterable[T]) -> list[Any]:
    """Return the cases of a nightly test, of which `make matrix` alone runs those that are not ``kept``.

    Raises:
        ValueError: If none is kept: the test would be in neither of the two commands that each change passes.
    """
    found = [(case, kept(case)) for case in cases]
    if not any(stays for _, stays in found):
        raise ValueError("no case is kept for `make nightly`")
    return [case if stays else _later(case, matrix=True) for case, stays in found]


def _later(case: object, matrix: bool) -> Any:  # noqa: ANN401  # pytest's own, without a public name
    return pytest.param(case, marks=pytest.mark.matrix if matrix else pytest.mark.nightly)
