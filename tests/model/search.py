"""Breadth-first search over the states of a model, and the shortest way to a violation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

S = TypeVar("S", bound="Hashable")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A way to a violation."""

    what: str
    steps: tuple[str, ...]


def search(
    begins: Iterable[S],
    successors: Callable[[S], Iterable[tuple[str, S]]],
    violation: Callable[[S, Sequence[str]], str | None],
) -> tuple[int, Found | None]:
    """Visit every reachable state; return how many were seen, and the first violation.

    Args:
        begins: The states to begin in.
        successors: Yields every step from a state, with its label.
        violation: Says what is wrong with a state, given the labels of the steps that lead out of it.
    """
    came: dict[S, tuple[S, str] | None] = dict.fromkeys(begins)
    frontier = list(came)
    while frontier:
        reached = []
        for state in frontier:
            steps = list(successors(state))
            wrong = violation(state, [label for label, _ in steps])
            if wrong is not None:
                return len(came), Found(what=wrong, steps=_way(state, came))
            for label, after in steps:
                if after not in came:
                    came[after] = (state, label)
                    reached.append(after)
        frontier = reached
    return len(came), None


def _way(state: S, came: dict[S, tuple[S, str] | None]) -> tuple[str, ...]:
    labels = []
    while (step := came[state]) is not None:
        state, label = step
        labels.append(label)
    return tuple(reversed(labels))
