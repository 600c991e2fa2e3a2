"""Groups of neighbours."""

from __future__ import annotations

import pytest

from airflow_flinkstyle.grouping import groups_within


@pytest.mark.parametrize(
    ("sizes", "most_items", "expected"),
    [
        ([], None, []),
        ([1, 2, 3, 4], None, [[1, 2], [3], [4]]),
        ([9, 1, 9], None, [[9], [1], [9]]),
        ([0, 0, 0, 4, 0], None, [[0, 0, 0, 4, 0]]),
        ([1, 1, 1, 1, 1], 2, [[1, 1], [1, 1], [1]]),
    ],
)
def test_groups_are_as_large_as_they_may_be(
    sizes: list[int], most_items: int | None, expected: list[list[int]]
):
    assert list(groups_within(sizes, lambda size: size, most=4, most_items=most_items)) == expected
