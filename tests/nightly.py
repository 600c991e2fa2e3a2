"""Which cases of a parametrised test a contributor waits for: the others get the marker ``nightly``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


def nightly_but(kept: Callable[[T], bool], cases: Iterable[T]) -> list[Any]:
    """Return the cases, of which `make test` runs those that are ``kept`` and `make nightly` the others.

    Raises:
        ValueError: If none is kept: mark the test itself, then.
    """
    found = [(case, kept(case)) for case in cases]
    if not any(stays for _, stays in found):
        raise ValueError("no case is kept for `make test`")
    return [case if stays else pytest.param(case, marks=pytest.mark.nightly) for case, stays in found]
