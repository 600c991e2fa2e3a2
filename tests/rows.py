"""Rows of any type that Spark keeps in state, for property tests of the codec."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

INTERVAL = pa.month_day_nano_interval()
SIMPLE: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.null(): st.none(),
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.decimal128(10, 2): st.decimals(min_value="-99999999.99", max_value="99999999.99", places=2),
    pa.decimal128(38, 5): st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-5")),
    pa.string(): st.text(max_size=20),
    pa.binary(): st.binary(max_size=20),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.duration("us"): st.timedeltas(dt.timedelta(-(10**6)), dt.timedelta(10**6)),
    INTERVAL: st.tuples(
        st.integers(-9, 9), st.integers(-9, 9), st.integers(-(10**9), 10**9).map(lambda us: us * 1000)
    ).map(pa.MonthDayNano),
}


def values_of(kind: pa.DataType, *, never_null: bool = False) -> st.SearchStrategy[Any]:
    """Return values of a type, null among them if not ``never_null``."""
    if pa.types.is_struct(kind):
        fields = {kind.field(n).name: values_of(kind.field(n).type) for n in range(kind.num_fields)}
        found: st.SearchStrategy[Any] = st.fixed_dictionaries(fields)
    elif pa.types.is_map(kind):
        keys = values_of(kind.key_type, never_null=True)
        found = st.lists(st.tuples(keys, values_of(kind.item_type)), max_size=4)
    elif pa.types.is_list(kind):
        found = st.lists(values_of(kind.value_type), max_size=70)
    else:
        found = SIMPLE[kind]
    return found if never_null else st.one_of(st.none(), found)


def structs_of(kinds: st.SearchStrategy[pa.DataType], most: int) -> st.SearchStrategy[pa.StructType]:
    """Return structs, also of more fields than one word has null bits for."""
    return st.lists(kinds, min_size=1, max_size=most).map(
        lambda fields: pa.struct([(f"f{n}", kind) for n, kind in enumerate(fields)])
    )


PLAIN = st.sampled_from(list(SIMPLE))
KINDS = st.recursive(
    PLAIN,
    lambda kinds: st.one_of(
        kinds.map(pa.list_),
        st.tuples(st.sampled_from([pa.string(), pa.int32()]), kinds).map(lambda pair: pa.map_(*pair)),
        structs_of(kinds, 3),
    ),
    max_leaves=4,
)
