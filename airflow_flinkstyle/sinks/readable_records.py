"""Records of a batch that the output holds already, known by content: no reader learns who wrote a record."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.kafka.fingerprints import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_NOT_GIVEN = (None, None, None, -1, None, None, None, None)
"""Arguments of the client's ``produce``, from topic to headers."""


class ReadableRecords:
    """Records that readers get, by partition and content; each is left out as often as it was read."""

    def __init__(self) -> None:
        """Begin with none."""
        self._counts: Counter[tuple[int, int]] = Counter()
        self._partitions: set[int] = set()

    def __len__(self) -> int:
        """Return how many there are."""
        return self._counts.total()

    def add(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] | None,
    ) -> None:
        """Note a record that was read."""
        self._partitions.add(partition)
        self._counts[partition, fingerprint(key, value, headers or (), None)] += 1

    def missing(self, records: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Yield the records that readers do not get yet.

        Args:
            records: As the client's ``produce`` takes them, by position.
        """
        for record in records:
            given: tuple[Any, ...] = record + _NOT_GIVEN[len(record) :]
            found = fingerprint(given[2], given[1], given[7] or (), None)
            # Without a partition of its own a record is in the one of its key, or in any.
            places = [given[3]] if given[3] >= 0 else self._partitions
            place = next((number for number in places if self._counts[number, found]), None)
            if place is None:
                yield record
            else:
                self._counts[place, found] -= 1
