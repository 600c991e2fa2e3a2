"""Arrow's columns to Spark's rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from airflow_flinkstyle.state.errors import STATE_ROW_TOO_LARGE, STATE_ROW_UNKNOWN_TYPE
from airflow_flinkstyle.state.rows.decimals import WIDTH, to_java
from airflow_flinkstyle.state.rows.fixed import (
    INTERVAL,
    is_in_a_word,
    is_wide_decimal,
    numbers_of,
    present,
    raw,
    width_of,
    words_of,
)
from airflow_flinkstyle.state.rows.segments import BITS, WORD, Segments, numbered, padded, starts_of, sums_of

if TYPE_CHECKING:
    from airflow_flinkstyle.state.rows.segments import Flags, Numbers

_MOST_BYTES: Final = 2**31 - 1


def encode_rows(rows: pa.StructArray | pa.RecordBatch) -> pa.BinaryArray:
    """Return each row as Spark keeps it, what ``UnsafeRow.getBytes`` gives.

    Args:
        rows: N rows. Types as Spark gives them to Arrow: booleans, integers, floats, ``decimal128``, strings,
            binary, ``date32``, ``timestamp('us')``, ``duration('us')``, ``month_day_nano_interval`` (Spark's
            calendar interval), null, structs, lists, maps; a year-month interval is an ``int32`` of months.

    Returns:
        N binaries; null where a struct is.

    Raises:
        FlinkstyleError: ``STATE_ROW`` if a type is none that Spark keeps in rows, or the rows are more than
            2 GiB together.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = rows.to_struct_array()
    found = _struct(rows)
    size = int(found.lengths.sum())
    if size > _MOST_BYTES:
        raise STATE_ROW_TOO_LARGE.error(size_bytes=size)
    offsets = np.append(found.starts, size).astype(np.int32)
    nulls = rows.is_valid().buffers()[1] if rows.null_count else None
    content = [nulls, pa.py_buffer(offsets), pa.py_buffer(found.data)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(rows), content)


def _struct(rows: pa.StructArray) -> Segments:
    """Return each struct's bytes, one behind the other; none where it is null."""
    there, fields = present(rows), rows.flatten()
    heads = (len(fields) + BITS - 1) // BITS
    fixed = (heads + len(fields)) * WORD
    behind = {n: _behind(field) for n, field in enumerate(fields) if not is_in_a_word(field.type)}
    room = {n: _room(fields[n].type, pieces) for n, pieces in behind.items()}
    lengths = np.where(there, fixed + sum(room.values(), np.zeros(len(rows), np.int64)), 0)
    starts = starts_of(lengths)
    words = np.zeros(int(lengths.sum()) // WORD, dtype=np.int64)
    first, cursor = starts[there] // WORD, np.full(len(rows), fixed, dtype=np.int64)
    for number, field in enumerate(fields):
        nulls = ~present(field)
        words[first + number // BITS] |= nulls[there].astype(np.int64) << (number % BITS)
        if (pieces := behind.get(number)) is None:
            words[first + heads + number] = words_of(field)[there]
            continue
        word = cursor << 32 | (WIDTH if field.type == INTERVAL else pieces.lengths)
        if not _has_fixed_room(field.type):
            word = np.where(nulls, 0, word)
        words[first + heads + number] = word[there]
        pieces.put_into(words.view(np.uint8), starts + cursor)
        cursor += room[number]
    return Segments(data=words.view(np.uint8), starts=starts, lengths=lengths)


def _list(elements: pa.Array, counts: Numbers, there: Flags) -> Segments:
    """Return the bytes of N lists, one behind the other, none for null; ``elements`` are those of all."""
    width, in_place = width_of(elements.type), is_in_a_word(elements.type)
    lists, own = numbered(counts)
    heads = (1 + (counts + BITS - 1) // BITS) * WORD
    fixed = heads + padded(counts * width)
    pieces = Segments.none(len(elements)) if in_place else _behind(elements)
    room = padded(pieces.lengths)
    lengths = np.where(there, fixed + sums_of(room, counts), 0)
    starts = starts_of(lengths)
    data = np.zeros(int(lengths.sum()), dtype=np.uint8)
    words = data.view(np.int64)
    words[starts[there] // WORD] = counts[there]
    nulls = np.flatnonzero(~present(elements))
    bit = np.int64(1) << (own[nulls] % BITS)
    np.bitwise_or.at(words, starts[lists[nulls]] // WORD + 1 + own[nulls] // BITS, bit)
    place = (starts + heads)[lists] + own * width
    if in_place:
        data.view(f"u{width}")[place // width] = numbers_of(elements)
    else:
        at = fixed[lists] + starts_of(room) - starts_of(sums_of(room, counts))[lists]
        words[place // WORD] = np.where(present(elements), at << 32 | pieces.lengths, 0)
        pieces.put_into(data, starts[lists] + at)
    return Segments(data=data, starts=starts, lengths=lengths)


def _map(maps: pa.MapArray) -> Segments:
    """Return the bytes of each map: how many bytes its keys are, its keys, its values."""
    there, counts, entries = present(maps), _counts(maps), _entries(maps)
    keys, items = (_list(entries.field(side), counts, there) for side in (0, 1))
    lengths = np.where(there, WORD + keys.lengths + items.lengths, 0)
    starts = starts_of(lengths)
    data = np.zeros(int(lengths.sum()), dtype=np.uint8)
    data.view(np.int64)[starts[there] // WORD] = keys.lengths[there]
    keys.put_into(data, starts + WORD)
    items.put_into(data, starts + WORD + keys.lengths)
    return Segments(data=data, starts=starts, lengths=lengths)


def _entries(maps: pa.MapArray) -> pa.StructArray:
    """Return keys and values of all maps; Arrow flattens lists only, which have the same buffers."""
    pairs = pa.StructArray.from_arrays([maps.keys, maps.items], ["key", "value"])
    buffers = maps.buffers()[:2]
    lists = pa.Array.from_buffers(
        pa.list_(pairs.type), len(maps), buffers, offset=maps.offset, children=[pairs]
    )
    return lists.flatten()


def _behind(values: pa.Array) -> Segments:
    """Return the bytes of each value that does not fit a word; none where it is null."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        found = _text(values)
    elif is_wide_decimal(kind):
        found = to_java(raw(values, WIDTH))
    elif kind == INTERVAL:
        found = _intervals(values)
    elif pa.types.is_struct(kind):
        return _struct(values)
    elif pa.types.is_map(kind):
        return _map(values)
    elif pa.types.is_list(kind):
        return _list(values.flatten(), _counts(values), present(values))
    else:
        raise STATE_ROW_UNKNOWN_TYPE.error(kind=str(kind))
    return found.only(present(values))


def _has_fixed_room(kind: pa.DataType) -> bool:
    """Tell whether Spark keeps room for the largest value in a row, so that it can change it in place."""
    return is_wide_decimal(kind) or kind == INTERVAL


def _room(kind: pa.DataType, pieces: Segments) -> Numbers:
    """Return the bytes behind a row's fixed part for each value."""
    if _has_fixed_room(kind):
        return np.full(len(pieces.lengths), WIDTH, dtype=np.int64)
    return padded(pieces.lengths)


def _counts(lists: pa.ListArray | pa.MapArray) -> Numbers:
    """Return how many elements each list has; 0 where it is null."""
    offsets = np.asarray(lists.offsets.to_numpy(), dtype=np.int64)
    return np.where(present(lists), np.diff(offsets), 0)


def _text(values: pa.StringArray | pa.BinaryArray) -> Segments:
    if len(values) == 0:
        return Segments.none(0)
    _, offsets, content = values.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1].astype(
        np.int64
    )
    data = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, dtype=np.uint8)
    return Segments(data=data, starts=ends[:-1], lengths=np.diff(ends))


def _intervals(values: pa.Array) -> Segments:
    """Return months, days and microseconds of each; Arrow counts nanoseconds."""
    data = raw(values, WIDTH).copy()
    data.view(np.int64)[:, 1] //= 1000
    return Segments.packed(data.reshape(-1), np.full(len(values), WIDTH, dtype=np.int64))
