"""Values that fit a word: their type's width, and their bytes as whole numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from airflow_flinkstyle.state.rows.decimals import MOST_DIGITS_IN_A_WORD, WIDTH
from airflow_flinkstyle.state.rows.segments import WORD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from airflow_flinkstyle.state.rows.segments import Flags, Numbers

INTERVAL: Final = pa.month_day_nano_interval()
_WIDTHS: Final = {
    pa.bool_(): 1,
    pa.int8(): 1,
    pa.int16(): 2,
    pa.int32(): 4,
    pa.int64(): 8,
    pa.float32(): 4,
    pa.float64(): 8,
    pa.date32(): 4,
    pa.duration("us"): 8,
    pa.null(): 8,
}


def is_wide_decimal(kind: pa.DataType) -> bool:
    """Tell whether Spark keeps such decimals as bytes."""
    return bool(pa.types.is_decimal128(kind)) and int(kind.precision) > MOST_DIGITS_IN_A_WORD


def is_in_a_word(kind: pa.DataType) -> bool:
    """Tell whether such values need nothing but their word."""
    if pa.types.is_decimal128(kind):
        return not is_wide_decimal(kind)
    return kind in _WIDTHS or _is_timestamp(kind)


def width_of(kind: pa.DataType) -> int:
    """Return the bytes of such a value in an array; a word where it is kept behind."""
    return _WIDTHS.get(kind, WORD)


def present(values: pa.Array) -> Flags:
    """Return which values are not null: (N,)."""
    if values.null_count == 0:
        return np.ones(len(values), dtype=np.bool_)
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def raw(values: pa.Array, width: int) -> NDArray[Any]:
    """Return the bytes of N values as Arrow holds them: (N, width); of nulls, anything."""
    data = np.frombuffer(values.buffers()[1], dtype=np.uint8)
    return data[values.offset * width : (values.offset + len(values)) * width].reshape(-1, width)


def numbers_of(values: pa.Array) -> NDArray[Any]:
    """Return N values' bytes as unsigned numbers of the type's width; 0 for null."""
    kind, there = values.type, present(values)
    if pa.types.is_null(kind):
        return np.zeros(len(values), dtype=np.uint64)
    if pa.types.is_boolean(kind):
        return np.asarray(values.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.uint8)
    if pa.types.is_decimal128(kind):
        found = np.ascontiguousarray(raw(values, WIDTH)[:, :WORD]).view(np.uint64).reshape(-1)
    else:
        width = width_of(kind)
        found = raw(values, width).view(f"u{width}").reshape(-1)
    return found if there.all() else np.where(there, found, 0).astype(found.dtype)


def words_of(values: pa.Array) -> Numbers:
    """Return N values as the words of a row: short ones are followed by zeros."""
    return numbers_of(values).astype(np.uint64).view(np.int64)


def from_numbers(found: NDArray[Any], kind: pa.DataType, there: Flags) -> pa.Array:
    """Return the values of N unsigned numbers of the type's width."""
    nulls = None if there.all() else pa.array(there).buffers()[1]
    if pa.types.is_null(kind):
        return pa.nulls(len(found))
    if pa.types.is_boolean(kind):
        return pa.array(found != 0, mask=~there)
    if pa.types.is_decimal128(kind):
        found = found.view(np.int64)
        wide = np.empty((len(found), 2), dtype=np.int64)
        wide[:, 0], wide[:, 1] = found, found >> 63
        found = wide
    content = pa.py_buffer(np.ascontiguousarray(found))
    return pa.Array.from_buffers(kind, len(there), [nulls, content])


def _is_timestamp(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit == "us"
