"""Pieces of bytes of different lengths, moved together: what rows are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]
    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

WORD: Final = 8
BITS: Final = 64
"""Null bits in a word."""
_LONG: Final = 512
"""Mean length in bytes from which a loop over pieces is faster than an index of every byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments:
    """N pieces of one buffer."""

    data: Bytes
    starts: Numbers
    """Shape (N,), in bytes."""
    lengths: Numbers
    """Shape (N,), in bytes; 0 where there is no piece."""

    @classmethod
    def packed(cls, data: Bytes, lengths: Numbers) -> Segments:
        """Return the pieces of a buffer in which one follows the other."""
        return cls(data=data, starts=starts_of(lengths), lengths=lengths)

    @classmethod
    def none(cls, count: int) -> Segments:
        """Return pieces that are all empty."""
        nothing = np.zeros(count, dtype=np.int64)
        return cls(data=np.zeros(0, dtype=np.uint8), starts=nothing, lengths=nothing)

    def only(self, wanted: Flags) -> Segments:
        """Return the pieces with those empty that are not wanted."""
        if wanted.all():
            return self
        return Segments(data=self.data, starts=self.starts, lengths=np.where(wanted, self.lengths, 0))

    def put_into(self, target: Bytes, at: Numbers) -> None:
        """Copy each piece to its place, ``at`` (N,) in bytes."""
        total = int(self.lengths.sum())
        if total > _LONG * max(1, len(self.lengths)):
            for start, length, place in zip(
                self.starts.tolist(), self.lengths.tolist(), at.tolist(), strict=True
            ):
                target[place : place + length] = self.data[start : start + length]
        elif total:
            within = np.arange(total, dtype=np.int64)
            begins = starts_of(self.lengths)
            source = within + np.repeat(self.starts - begins, self.lengths)
            target[within + np.repeat(at - begins, self.lengths)] = self.data[source]

    def together(self) -> Bytes:
        """Return all pieces, one behind the other."""
        found = np.empty(int(self.lengths.sum()), dtype=np.uint8)
        self.put_into(found, starts_of(self.lengths))
        return found


def starts_of(lengths: Numbers) -> Numbers:
    """Return where each piece begins if one follows the other: (N,) to (N,)."""
    found: Numbers = np.cumsum(lengths, dtype=np.int64) - lengths
    return found


def padded(lengths: Numbers) -> Numbers:
    """Return lengths in bytes, rounded up to whole words."""
    return (lengths + (WORD - 1)) // WORD * WORD


def sums_of(lengths: Numbers, counts: Numbers) -> Numbers:
    """Return the sum of each list's elements: (M,) and (N,) to (N,)."""
    ends: Numbers = np.append(0, np.cumsum(lengths, dtype=np.int64))
    begins = starts_of(counts)
    found: Numbers = ends[begins + counts] - ends[begins]
    return found


def numbered(counts: Numbers) -> tuple[Numbers, Numbers]:
    """Return for each element of N lists the number of its list, and its own number in there."""
    lists = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return lists, np.arange(len(lists), dtype=np.int64) - np.repeat(starts_of(counts), counts)
