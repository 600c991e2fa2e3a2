from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import pytest

from airflow_flinkstyle.storage.keys import Name
from airflow_flinkstyle.typed_json import Check, MismatchError, decode, encode, stored
from airflow_flinkstyle.types import BatchId, Count, NextOffset


@stored
@dataclass(frozen=True, slots=True)
class Found:
    kind: ClassVar[str] = "found"

    offset: NextOffset


@stored
@dataclass(frozen=True, slots=True)
class Lost:
    kind: ClassVar[str] = "lost"

    reason: str
    between: tuple[int, str] | None = None


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    number: Count
    after: Found | Lost
    note: str | None = None


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    name: Name
    batch: BatchId | None
    lease_s: float
    mode: Literal["claim", "no_claim"]
    partitions: tuple[Partition, ...]
    offsets: Mapping[str, Mapping[int, NextOffset]]
    launch: Mapping[str, Any]
    even: Annotated[int, Check("an even number", lambda number: number % 2 == 0)] = 0
    drain: bool = False
    notes: Mapping[Name, str] = field(default_factory=dict)


EVERYTHING = Everything(
    name="orders",
    batch=BatchId(7),
    lease_s=30,
    mode="claim",
    partitions=(
        Partition(number=0, after=Found(NextOffset(950))),
        Partition(number=1, after=Lost("gone", (3, "x")), note="second"),
    ),
    offsets={"orders": {0: NextOffset(1), 10: NextOffset(2)}},
    launch={"env": {"A": [1, None, {"b": True}]}},
    even=4,
    drain=True,
    notes={"q1": "first"},
)


def as_read(value: object) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(json.dumps(encode(value)))
    return read


def test_what_is_rendered_is_read_back():
    assert decode(Everything, as_read(EVERYTHING)) == EVERYTHING
    assert as_read(EVERYTHING)["partitions"][0] == {
        "number": 0,
        "after": {"kind": "found", "offset": 950},
        "note": None,
    }


def test_no_field_may_be_absent_whatever_its_default():
    for name in ("even", "drain", "notes"):
        document = as_read(EVERYTHING)
        del document[name]
        with pytest.raises(MismatchError, match=rf"^expected a field '{name}', found \["):
            decode(Everything, document)
    document = as_read(EVERYTHING)
    del document["partitions"][1]["note"]
    with pytest.raises(MismatchError, match=r"^partitions, \[1\]: expected a field 'note', found \["):
        decode(Everything, document)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (["name"], "../x", "name: expected a name of letters"),
        (["name"], 5, "name: expected a text, found 5"),
        (["name"], None, "name: expected a text, found None"),
        (["batch"], True, "batch: expected a whole number, found True"),
        (["batch"], 1.0, "batch: expected a whole number, found 1.0"),
        (["batch"], "1", "batch: expected a whole number, found '1'"),
        (["batch"], -1, "batch: expected a BatchId, 0 or more, found -1"),
        (["lease_s"], "30", "lease_s: expected a number, found '30'"),
        (["lease_s"], True, "lease_s: expected a number, found True"),
        (["lease_s"], float("nan"), "lease_s: expected a number, found nan"),
        (["lease_s"], float("inf"), "lease_s: expected a number, found inf"),
        (["lease_s"], 10**400, "lease_s: expected a number, found 1000"),
        (["mode"], "maybe", "mode: expected one of claim, no_claim, found 'maybe'"),
        (["mode"], ["claim"], "mode: expected one of claim, no_claim"),
        (["drain"], 1, "drain: expected true or false, found 1"),
        (["even"], 3, "even: expected an even number, found 3"),
        (["partitions"], {}, "partitions: expected a list, found {}"),
        (["partitions", 1], [], r"partitions, \[1\]: expected an object, found \[\]"),
        (
            ["partitions", 0, "number"],
            -1,
            r"partitions, \[0\], number: expected a number, 0 or more, found -1",
        ),
        (
            ["partitions", 0, "after"],
            None,
            r"\[0\], after: expected an object whose kind is one of found, lost",
        ),
        (["partitions", 0, "after"], {"offset": 1}, "after: expected an object whose kind is one of"),
        (["partitions", 0, "after", "kind"], "lost", "after: expected a field 'between'"),
        (["partitions", 0, "after", "kind"], ["found"], "after: expected an object whose kind is one of"),
        (["partitions", 1, "after", "between"], [1], r"between: expected a list of 2, found \[1\]"),
        (["partitions", 1, "after", "between"], ["x", 1], "between: expected a whole number, found 'x'"),
        (["offsets"], [], r"offsets: expected an object, found \[\]"),
        (["offsets", "orders"], {"x": 1}, "offsets, orders, x: expected a number as key, found 'x'"),
        (["offsets", "orders"], {"01": 1}, "offsets, orders, 01: expected a number as key, found '01'"),
        (["offsets", "orders"], {"\u0661": 1}, "expected a number as key"),
        (["offsets", "orders"], {"0": -2}, "offsets, orders, 0: expected a NextOffset, 0 or more, found -2"),
        (["launch"], "x", "launch: expected an object, found 'x'"),
        (["notes"], {"a/b": "x"}, "notes, a/b: expected a name of letters"),
        (["surprise"], 1, r"^expected no further fields, found \['surprise'\]"),
        (["partitions", 0, "surprise"], 1, r"\[0\]: expected no further fields, found \['surprise'\]"),
    ],
)
def test_what_the_annotation_does_not_allow_is_refused_with_its_place(
    path: list[str | int], value: object, says: str
):
    document = place = as_read(EVERYTHING)
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(MismatchError, match=says):
        decode(Everything, document)


@pytest.mark.parametrize("document", [None, [], "x", 1, {}])
def test_what_is_no_such_object_is_refused(document: object):
    with pytest.raises(MismatchError, match=r"expected an object|expected a field"):
        decode(Everything, document)


def test_class_that_is_not_marked_is_not_read():
    @dataclass
    class Unmarked:
        name: str

    with pytest.raises(TypeError, match="mark the class with stored"):
        decode(Unmarked, {"name": "x"})
