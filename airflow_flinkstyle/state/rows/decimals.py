"""Decimals of more than 18 digits: Java's shortest big-endian bytes, and Arrow's 16 little-endian ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from airflow_flinkstyle.state.rows.segments import Segments

if TYPE_CHECKING:
    from airflow_flinkstyle.state.rows.segments import Bytes

MOST_DIGITS_IN_A_WORD: Final = 18
"""Spark keeps decimals up to this precision as a long."""
WIDTH: Final = 16
_SIGN: Final = 0x80


def to_java(values: Bytes) -> Segments:
    """Return what ``BigInteger.toByteArray`` gives for little-endian values of shape (N, 16)."""
    big = np.ascontiguousarray(values[:, ::-1])
    sign = _sign(big[:, 0])[:, None]
    # A leading byte is left out where it repeats the sign, which the byte behind it shows as well.
    spare = (big[:, :-1] == sign) & ((big[:, 1:] & _SIGN) == (sign & _SIGN))
    skipped = np.cumprod(spare, axis=1, dtype=np.int64).sum(axis=1)
    begins = np.arange(len(big), dtype=np.int64) * WIDTH
    return Segments(data=big.reshape(-1), starts=begins + skipped, lengths=WIDTH - skipped)


def from_java(pieces: Segments) -> Bytes:
    """Return little-endian values (N, 16) of big-endian bytes; 0 where a piece is empty."""
    found = np.zeros((len(pieces.starts), WIDTH), dtype=np.uint8)
    some = np.flatnonzero(pieces.lengths)
    starts, lengths = pieces.starts[some], pieces.lengths[some]
    sign = _sign(pieces.data[starts])
    for place in range(WIDTH):
        at = np.where(lengths > place, starts + lengths - 1 - place, starts)
        found[some, place] = np.where(lengths > place, pieces.data[at], sign)
    return found


def _sign(first: Bytes) -> Bytes:
    return np.where(first & _SIGN, 0xFF, 0).astype(np.uint8)
