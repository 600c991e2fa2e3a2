"""Neighbours in groups of a bounded size. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

T = TypeVar("T")


def groups_within(
    items: Iterable[T], size_of: Callable[[T], int], *, most: int, most_items: int | None = None
) -> Iterator[list[T]]:
    """Yield the items in their order, in groups that are as large as they may be; a larger item is alone.

    Args:
        items: What is grouped.
        size_of: Returns the size of an item.
        most: Of a group's sizes together.
        most_items: Of a group; None for any number.
    """
    group: list[T] = []
    size = 0
    for item in items:
        own = size_of(item)
        if group and (size + own > most or len(group) == most_items):
            yield group
            group, size = [], 0
        group.append(item)
        size += own
    if group:
        yield group
