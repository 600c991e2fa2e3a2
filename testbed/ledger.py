"""The producer's ledger: every order a broker acknowledged, in a file that only grows."""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_NUMBER = 32_768
"""The job's bitmap holds so many order numbers per customer; one more would be taken for the first."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a customer ordered."""

    customer: str
    number: int
    """Counts from 1 per customer."""
    amount: int
    """Cents."""
    partition: int

    def to_json(self) -> bytes:
        """Render as the job reads it."""
        return json.dumps({"customer": self.customer, "number": self.number, "amount": self.amount}).encode()


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger."""

    order: Order
    cluster: str
    """Name of the cluster that acknowledged it."""
    offset: int | None
    """None: the broker's answer is unknown, the order may or may not be in the log."""


class LedgerWriter:
    """Appends entries; ``flush`` makes them readable."""

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("a", encoding="utf-8")
        self.written = 0

    def append(self, entry: Entry) -> None:
        """Add one line."""
        line = json.dumps([*astuple(entry.order), entry.cluster, entry.offset], separators=(",", ":"))
        self._file.write(line + "\n")
        self.written += 1

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()


def read_ledger(path: Path) -> Iterator[Entry]:
    """Yield the complete lines; the producer may be writing the last one."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                customer, number, amount, partition, cluster, offset = json.loads(line)
                yield Entry(Order(customer, number, amount, partition), cluster, offset)
