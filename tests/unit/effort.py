"""What code does, counted: calls of functions, which no other work on the machine changes."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Effort:
    """How often Python's and C's functions were called."""

    calls: int = 0


@contextmanager
def counted() -> Iterator[Effort]:
    """Count what this thread calls within the block, where a test would otherwise take the time."""
    effort, before = Effort(), sys.getprofile()

    def called(_frame: object, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            effort.calls += 1

    sys.setprofile(called)
    try:
        yield effort
    finally:
        sys.setprofile(before)
