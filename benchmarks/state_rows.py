"""The codec of rows beside a loop of ``struct``, which is how a script would do it."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_flinkstyle.state.rows import decode_rows, encode_rows
from benchmarks.common import PAIRS, Report, Spread, Table, Target, interleave, ratios

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, QUICK_ROWS = 1_000_000, 10_000
BATCH = 10_000
"""Rows at a time, as Spark hands them to a function of Arrow."""
KEY = pa.struct([("customer", pa.string())])
VALUE = pa.struct([("count", pa.int64()), ("sum", pa.int64())])
MOST_S = 1.0
LOOP, ENCODE, DECODE = "a loop of struct", "encode_rows", "decode_rows"


def run(*, quick: bool) -> Report:
    """Encode and decode keys and values in turn with the loop."""
    number = QUICK_ROWS if quick else ROWS
    batches = [_batch(first, min(BATCH, number - first)) for first in range(0, number, BATCH)]
    encoded = [(encode_rows(key), encode_rows(value)) for key, value in batches]
    lists = [(key.field(0).to_pylist(), value.to_pylist()) for key, value in batches]
    ways: dict[str, Callable[[], float]] = {
        LOOP: lambda: _seconds(lambda: [_looped(*columns) for columns in lists]),
        ENCODE: lambda: _seconds(lambda: [(encode_rows(k), encode_rows(v)) for k, v in batches]),
        DECODE: lambda: _seconds(lambda: [(decode_rows(k, KEY), decode_rows(v, VALUE)) for k, v in encoded]),
    }
    seconds = interleave(ways, rounds=1 if quick else PAIRS)
    rows = tuple(
        (name, Spread.of(taken).text(" s"), f"{number / Spread.of(taken).median / 1e6:.2f}")
        for name, taken in seconds.items()
    )
    scaled = {name: [one * ROWS / number for one in taken] for name, taken in seconds.items()}
    return Report(
        about=f"{number:,} keys of one string of 16 bytes and values of two numbers, {BATCH:,} at a time, to "
        f"Spark's rows and back, in one thread; seconds of the processor. The loop writes the same bytes by "
        f"Python's `struct` ({ratios(seconds[LOOP], seconds[ENCODE]).text('x')} of `encode_rows`).",
        tables=(
            Table(columns=("way", "processor", "million keys and values a second"), rows=rows, detail=True),
        ),
        targets=tuple(
            Target(
                what=f"1,000,000 keys and values by `{way}`",
                limit=MOST_S,
                found=Spread.of(scaled[way]),
                unit=" s",
            )
            for way in (ENCODE, DECODE)
        ),
        raw=dict(seconds),
    )


def _batch(first: int, count: int) -> tuple[Any, Any]:
    names = pa.array([f"customer-{number:07}" for number in range(first, first + count)])
    numbers = pa.array(range(first, first + count), pa.int64())
    key = pa.StructArray.from_arrays([names], fields=[KEY.field(0)])
    return key, pa.StructArray.from_arrays([numbers, numbers], fields=list(VALUE))


def _looped(names: list[str], values: list[dict[str, int]]) -> list[tuple[bytes, bytes]]:
    found = []
    for name, value in zip(names, values, strict=True):
        text = name.encode()
        key = struct.pack("<qII", 0, len(text), 16) + text + b"\0" * (-len(text) % 8)
        found.append((key, struct.pack("<qqq", 0, value["count"], value["sum"])))
    return found


def _seconds(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s
