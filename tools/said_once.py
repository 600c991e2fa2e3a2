"""What several entries of a generated page say alike, which the page says once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def said_often(said: Iterable[tuple[str, str]]) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """Return the words that each name has most often, and the names with the words that they have twice."""
    counted = Counter(said)
    usual = dict(pair for pair, _ in reversed(counted.most_common()))
    return usual, {pair for pair, count in counted.items() if count > 1}
