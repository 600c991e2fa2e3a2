"""Rows as Spark keeps them: to bytes and back, for every type, nested in each other; damaged ones."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.state.errors import STATE_ROW
from airflow_flinkstyle.state.rows import decode_rows, encode_rows
from testbed.refusals import refuses
from tests.rows import KINDS, structs_of, values_of


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_rows_of_any_type_come_back(data: st.DataObject):
    kind = data.draw(structs_of(KINDS, 4))
    rows = pa.array(data.draw(st.lists(values_of(kind), max_size=6)), kind)
    found = decode_rows(encode_rows(rows), kind)
    assert found.type.equals(kind)
    assert found.to_pylist() == rows.to_pylist()
    found.validate(full=True)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_slice_is_encoded_as_its_rows_are(data: st.DataObject):
    kind = data.draw(structs_of(KINDS, 4))
    rows = pa.array(data.draw(st.lists(values_of(kind), min_size=3, max_size=6)), kind)
    whole = encode_rows(rows)
    assert encode_rows(rows[1:-1]).to_pylist() == whole.to_pylist()[1:-1]
    assert decode_rows(whole[1:-1], kind).to_pylist() == rows.to_pylist()[1:-1]


def test_seventy_fields_have_two_words_of_null_bits():
    kind = pa.struct([(f"f{n}", pa.int32()) for n in range(70)])
    row = {f"f{n}": None if n in (0, 63, 64, 69) else n for n in range(70)}
    (found,) = encode_rows(pa.array([row], kind)).to_pylist()
    assert len(found) == (2 + 70) * 8
    assert struct.unpack_from("<QQ", found) == (1 | 1 << 63, 1 | 1 << 5)
    assert decode_rows(pa.array([found]), kind).to_pylist() == [row]


def test_row_of_a_string_and_a_number_is_as_spark_writes_it():
    rows = pa.RecordBatch.from_pydict({"customer": ["c1"], "n": pa.array([7], pa.int64())})
    expected = struct.pack("<qIIq", 0, 2, 24, 7) + b"c1".ljust(8, b"\0")
    assert encode_rows(rows).to_pylist() == [expected]


def test_row_without_fields_has_no_bytes():
    rows = pa.array([{}, {}], pa.struct([]))
    assert encode_rows(rows).to_pylist() == [b"", b""]
    assert decode_rows(pa.array([b"", b""]), pa.struct([])).to_pylist() == [{}, {}]


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.time64("us"), pa.large_list(pa.int8()), pa.uint8()])
def test_type_that_spark_keeps_in_no_row_is_refused_by_name(kind: pa.DataType):
    with refuses(STATE_ROW, match=r"a type that Spark keeps in state, found "):
        encode_rows(pa.array([{"a": None}], pa.struct([("a", kind)])))
    with refuses(STATE_ROW, match=r"a type that Spark keeps in state, found "):
        decode_rows(pa.array([bytes(16)]), pa.struct([("a", kind)]))


TEXT = pa.struct([("a", pa.string())])
NUMBERS = pa.struct([("a", pa.list_(pa.int32()))])
MAPS = pa.struct([("a", pa.map_(pa.int32(), pa.int32()))])


@pytest.mark.parametrize(
    ("row", "kind", "found"),
    [
        (bytes(12), TEXT, "no whole number of words"),
        (bytes(8), TEXT, "fewer bytes than its fields take"),
        (struct.pack("<qII", 0, 9, 16), TEXT, "a place outside of the row"),
        (struct.pack("<qII", 0, 1, 2**31), TEXT, "a place outside of the row"),
        (struct.pack("<qIIq", 0, 4, 17, 0), TEXT, "begins within a word"),
        (struct.pack("<qIIqq", 0, 16, 16, 3, 0), NUMBERS, "more elements than bytes"),
        (struct.pack("<qIIqq", 0, 16, 16, -3, 0), NUMBERS, "more elements than bytes"),
        (struct.pack("<qIIqq", 0, 16, 16, 99, 0), MAPS, "keys are longer than itself"),
    ],
)
def test_damaged_row_is_refused_and_said(row: bytes, kind: pa.StructType, found: str):
    with refuses(STATE_ROW, match=found):
        decode_rows(pa.array([row]), kind)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_changed_bytes_are_read_or_refused_and_nothing_else(data: st.DataObject):
    kind = data.draw(structs_of(KINDS, 4))
    rows = pa.array(data.draw(st.lists(values_of(kind, never_null=True), min_size=1, max_size=3)), kind)
    damaged = [bytearray(row) for row in encode_rows(rows).to_pylist()]
    for row in damaged:
        if row:
            row[data.draw(st.integers(0, len(row) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_rows(pa.array([bytes(row) for row in damaged]), kind)
    except FlinkstyleError:
        return
    assert len(found) == len(rows)
