"""Spark's rows to Arrow's columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from airflow_flinkstyle.state.errors import STATE_ROW_DAMAGED, STATE_ROW_UNKNOWN_TYPE
from airflow_flinkstyle.state.rows.decimals import from_java
from airflow_flinkstyle.state.rows.fixed import (
    INTERVAL,
    from_numbers,
    is_in_a_word,
    is_wide_decimal,
    present,
    width_of,
)
from airflow_flinkstyle.state.rows.segments import BITS, WORD, Segments, numbered, padded, starts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from airflow_flinkstyle.state.rows.segments import Bytes, Flags, Numbers

_HALF: Final = 32


def decode_rows(rows: pa.BinaryArray, kind: pa.StructType) -> pa.StructArray:
    """Return the fields of rows as Spark keeps them.

    Args:
        rows: N binaries, each the bytes of an ``UnsafeRow``.
        kind: The rows' fields, types as in ``encode_rows``.

    Returns:
        N structs; null where a binary is.

    Raises:
        FlinkstyleError: ``STATE_ROW`` if bytes are none of such a row: too short, or naming a place outside
            themselves.
    """
    there = present(rows)
    _, offsets, content = rows.buffers()
    ends = np.zeros(1, np.int64)
    if len(rows):
        ends = np.frombuffer(offsets, dtype=np.int32)[rows.offset : rows.offset + len(rows) + 1].astype(
            np.int64
        )
    lengths = np.where(there, np.diff(ends), 0)
    if (lengths % WORD).any():
        raise STATE_ROW_DAMAGED.error(what="a length that is no whole number of words")
    data = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, dtype=np.uint8)
    aligned = Segments(data=data, starts=ends[:-1], lengths=lengths).together()
    return _struct(_ByteRows(data=aligned, starts=starts_of(lengths), lengths=lengths, there=there), kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ByteRows:
    """N values that are kept as bytes of their own, each beginning at a word of the buffer."""

    data: Bytes
    starts: Numbers
    lengths: Numbers
    there: Flags

    def __post_init__(self) -> None:
        outside = (self.starts < 0) | (self.lengths < 0) | (self.starts + self.lengths > len(self.data))
        if (outside & self.there).any():
            raise STATE_ROW_DAMAGED.error(what="a place outside of the row")

    def numbers(self, at: Numbers, width: int, there: Flags) -> NDArray[Any]:
        """Return the unsigned numbers at bytes ``at``; 0 where there is none."""
        inside = np.where(there, at, 0)
        if there.any() and (inside.min() < 0 or inside.max() + width > len(self.data)):
            raise STATE_ROW_DAMAGED.error(what="fewer bytes than its fields take")
        if not len(self.data):
            return np.zeros(len(at), dtype=f"u{width}")
        found = self.data.view(f"u{width}")[inside // width]
        return found if there.all() else np.where(there, found, 0).astype(found.dtype)

    def words(self, at: Numbers, there: Flags) -> Numbers:
        """Return the words at bytes ``at``; 0 where there is none."""
        return self.numbers(at, WORD, there).view(np.int64)

    def behind(self, words: Numbers, bases: Numbers, ends: Numbers, there: Flags) -> _ByteRows:
        """Return what words of offset and length name, counted from ``bases``, before ``ends``."""
        offsets, lengths = words >> _HALF, words & 0xFFFFFFFF
        starts = np.where(there, bases + offsets, 0)
        lengths = np.where(there, lengths, 0)
        if ((offsets % WORD != 0) & there).any():
            raise STATE_ROW_DAMAGED.error(what="a value that begins within a word")
        if ((starts + lengths > ends) & there).any():
            raise STATE_ROW_DAMAGED.error(what="a place outside of the row")
        return _ByteRows(data=self.data, starts=starts, lengths=lengths, there=there)


def _struct(rows: _ByteRows, kind: pa.StructType) -> pa.StructArray:
    fields = [kind.field(number) for number in range(kind.num_fields)]
    heads = (len(fields) + BITS - 1) // BITS
    if ((rows.lengths < (heads + len(fields)) * WORD) & rows.there).any():
        raise STATE_ROW_DAMAGED.error(what="fewer bytes than its fields take")
    columns, ends = [], rows.starts + rows.lengths
    for number, field in enumerate(fields):
        head = rows.words(rows.starts + number // BITS * WORD, rows.there)
        there = rows.there & (head >> (number % BITS) & 1 == 0)
        at = rows.starts + (heads + number) * WORD
        if is_in_a_word(field.type):
            columns.append(from_numbers(rows.numbers(at, width_of(field.type), there), field.type, there))
        else:
            columns.append(_value(rows.behind(rows.words(at, there), rows.starts, ends, there), field.type))
    mask = None if rows.there.all() else pa.array(~rows.there)
    if not columns:
        return pa.array([{} if one else None for one in rows.there], pa.struct([]))
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _value(rows: _ByteRows, kind: pa.DataType) -> pa.Array:
    """Return values that are kept behind the fixed part."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _text(rows, kind)
    if is_wide_decimal(kind) or kind == INTERVAL:
        return _sixteen_bytes(rows, kind)
    if pa.types.is_struct(kind):
        return _struct(rows, kind)
    if pa.types.is_map(kind):
        return _map(rows, kind)
    if pa.types.is_list(kind):
        elements, counts = _list(rows, kind.value_type)
        return pa.ListArray.from_arrays(_offsets(counts, rows.there), elements, type=kind)
    raise STATE_ROW_UNKNOWN_TYPE.error(kind=str(kind))


def _list(rows: _ByteRows, kind: pa.DataType) -> tuple[pa.Array, Numbers]:
    """Return the elements of all lists, and how many each has."""
    width, ends = width_of(kind), rows.starts + rows.lengths
    counts = rows.words(rows.starts, rows.there)
    heads = (1 + (counts + BITS - 1) // BITS) * WORD
    if (
        ((counts < 0) | (counts > rows.lengths) | (heads + padded(counts * width) > rows.lengths))
        & rows.there
    ).any():
        raise STATE_ROW_DAMAGED.error(what="a list with more elements than bytes")
    lists, own = numbered(counts)
    every = np.ones(len(lists), dtype=np.bool_)
    head = rows.words(rows.starts[lists] + (1 + own // BITS) * WORD, every)
    there = head >> (own % BITS) & 1 == 0
    at = (rows.starts + heads)[lists] + own * width
    if is_in_a_word(kind):
        return from_numbers(rows.numbers(at, width, there), kind, there), counts
    words = rows.words(at, there)
    return _value(rows.behind(words, rows.starts[lists], ends[lists], there), kind), counts


def _map(rows: _ByteRows, kind: pa.MapType) -> pa.MapArray:
    size = rows.words(rows.starts, rows.there)
    if (((size < 0) | (size % WORD != 0) | (WORD + size > rows.lengths)) & rows.there).any():
        raise STATE_ROW_DAMAGED.error(what="a map whose keys are longer than itself")
    first = np.where(rows.there, rows.starts + WORD, 0)
    rest = np.where(rows.there, rows.lengths - WORD - size, 0)
    keys, counts = _list(
        _ByteRows(data=rows.data, starts=first, lengths=size, there=rows.there), kind.key_type
    )
    items, others = _list(
        _ByteRows(data=rows.data, starts=first + size, lengths=rest, there=rows.there), kind.item_type
    )
    if keys.null_count:
        raise STATE_ROW_DAMAGED.error(what="a map with a key that is null")
    if (counts != others).any():
        raise STATE_ROW_DAMAGED.error(what="a map with more keys than values, or fewer")
    return pa.MapArray.from_arrays(_offsets(counts, rows.there), keys, items, type=kind)


def _offsets(counts: Numbers, there: Flags) -> pa.Array:
    """Return the offsets of lists, null where a list is."""
    offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
    return pa.array(offsets, mask=np.append(~there, False))


def _text(rows: _ByteRows, kind: pa.DataType) -> pa.Array:
    lengths = rows.lengths
    content = Segments(data=rows.data, starts=rows.starts, lengths=lengths).together()
    offsets = np.append(0, np.cumsum(lengths)).astype(np.int32)
    nulls = None if rows.there.all() else pa.array(rows.there).buffers()[1]
    buffers = [nulls, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.Array.from_buffers(kind, len(lengths), buffers)


def _sixteen_bytes(rows: _ByteRows, kind: pa.DataType) -> pa.Array:
    """Return wide decimals or calendar intervals."""
    pieces = Segments(data=rows.data, starts=rows.starts, lengths=rows.lengths)
    if (rows.lengths > 2 * WORD).any():
        raise STATE_ROW_DAMAGED.error(what=f"more than 16 bytes for {kind}")
    if kind == INTERVAL:
        data = np.zeros((len(rows.starts), 2 * WORD), dtype=np.uint8)
        pieces.put_into(data.reshape(-1), np.arange(len(data), dtype=np.int64) * 2 * WORD)
        data.view(np.int64)[:, 1] *= 1000
    else:
        data = from_java(pieces)
    nulls = None if rows.there.all() else pa.array(rows.there).buffers()[1]
    return pa.Array.from_buffers(kind, len(rows.starts), [nulls, pa.py_buffer(np.ascontiguousarray(data))])
