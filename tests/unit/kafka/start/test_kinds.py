"""Start positions as people write them."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.start.kinds import (
    AtOffsets,
    AtTimestamp,
    Earliest,
    FromGroup,
    Latest,
    Shifted,
    Start,
    StartRules,
    text_of,
)
from airflow_flinkstyle.kafka.start.text import parse_rules, parse_start
from airflow_flinkstyle.offsets import Offsets

if TYPE_CHECKING:
    from pathlib import Path

TEN_O_CLOCK_MS = 1795255200000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Earliest()),
        (" latest ", Latest()),
        ("timestamp:2026-11-21T10:00:00Z", AtTimestamp(TEN_O_CLOCK_MS)),
        ("timestamp:2026-11-21T12:00:00+02:00:after_last=latest", AtTimestamp(TEN_O_CLOCK_MS, "latest")),
        (f"timestamp:{TEN_O_CLOCK_MS}", AtTimestamp(TEN_O_CLOCK_MS)),
        ({"timestamp": TEN_O_CLOCK_MS, "after_last": "latest"}, AtTimestamp(TEN_O_CLOCK_MS, "latest")),
        ("group:orders", FromGroup("orders")),
        ("group:a:b:missing=earliest", FromGroup("a:b", "earliest")),
        ({"group": "a:missing=latest"}, FromGroup("a:missing=latest")),
        ('offsets:{"t": {"0": 17}}', AtOffsets(Offsets({("t", 0): 17}))),
        ({"offsets": {"t": {0: 17, "1": "3"}}}, AtOffsets(Offsets({("t", 0): 17, ("t", 1): 3}))),
        ("shift:-100", Shifted(records=-100)),
        ("shift:0", Shifted(records=0)),
        ("shift:-5m", Shifted(ms=-300_000)),
        ({"shift": "+2h"}, Shifted(ms=7_200_000)),
    ],
)
def test_every_start_can_be_written(text: object, start: Start):
    assert parse_start(text) == start


@pytest.mark.parametrize(
    "start",
    [
        *(Earliest(), Latest(), AtTimestamp(TEN_O_CLOCK_MS), AtTimestamp(TEN_O_CLOCK_MS, "latest")),
        *(FromGroup("a:b"), FromGroup("g", "latest"), Shifted(records=3), Shifted(ms=-1500)),
    ],
)
def test_start_is_shown_as_it_can_be_written(start: Start):
    assert parse_start(text_of(start)) == start


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "known forms"),
        ("earlyest", "known forms"),
        (None, "known forms"),
        (7, "known forms"),
        ("timestamp:2026-11-21T10:00:00", "time zone"),
        ("timestamp:yesterday", "ISO 8601"),
        ("timestamp:1795255200", "may be seconds"),
        ("timestamp:" + "9" * 5000, "ISO 8601"),
        ("group:", "a name"),
        ("group:g:missing=guess", "refuse, earliest, latest"),
        ("offsets:{", "JSON"),
        ('offsets:{"t": {"0": -1}}', "from 0 on"),
        ('offsets:{"t": 5}', "topic -> partition -> offset"),
        ("offsets:{}", "none"),
        ("shift:-5x", "-5m"),
        ("shift:" + "1" * 5000, "-5m"),
        ("savepoint:sp-1", "no savepoint"),
        ({"group": "g", "after_last": "latest"}, "known forms"),
        ({"partitions": {"t": "latest"}}, "topic -> partition"),
        ({"partitions": {"t": {"x": "latest"}}}, "partition number"),
        ({"topics": {"t": "nowhere"}}, "known forms"),
        ("{", "JSON"),
    ],
)
def test_start_nobody_can_understand_is_refused_with_every_form(text: object, words: str):
    with pytest.raises(BadInputError) as caught:
        parse_rules(text)
    assert words in caught.value.problem
    assert "earliest" in caught.value.remedy


@given(st.recursive(st.text() | st.integers() | st.none(), lambda inner: st.dictionaries(st.text(), inner)))
def test_whatever_is_given_is_a_start_or_bad_input(value: object):
    with contextlib.suppress(BadInputError):
        assert parse_rules(value).of(("t", 0)) is not None


def test_partition_takes_its_own_rule_then_its_topics_then_the_default():
    rules: dict[str, Any] = {
        "default": "earliest",
        "topics": {"orders": "latest"},
        "partitions": {"orders": {"1": "shift:-1"}},
    }
    for given_rules in (rules, json.dumps(rules)):
        found = parse_rules(given_rules)
        assert [found.of(tp) for tp in (("other", 0), ("orders", 0), ("orders", 1))] == [
            *(Earliest(), Latest(), Shifted(records=-1)),
        ]
    assert parse_rules("latest") == StartRules(default=Latest())
    assert parse_rules({"topics": {"orders": "latest"}}).of(("other", 0)) is None


def test_rules_for_several_sources_can_be_narrowed_to_one():
    found = parse_rules({"topics": {"a": "latest", "b": "earliest"}, "partitions": {"b": {"0": "latest"}}})
    assert found.about(["a"]) == StartRules(topics={"a": Latest()})


def test_savepoint_is_asked_of_the_one_who_knows_it():
    asked = []

    def offsets(name: str) -> AtOffsets:
        asked.append(name)
        return AtOffsets(Offsets({("t", 0): 1}), origin=f"savepoint:{name}")

    assert parse_rules("savepoint:sp-1/query/0", savepoint=offsets).default == AtOffsets(
        {("t", 0): 1}, origin="savepoint:sp-1/query/0"
    )
    assert asked == ["sp-1/query/0"]


@pytest.mark.parametrize(
    "content",
    [
        '{"a-b": {"0": 5, "1": 6}}',
        "topic,partition,offset\na-b,0,5\na-b,1,6\n",
        '\ufeff"a-b",0,5\r\n\r\n"a-b",1,6',
    ],
)
def test_table_is_read_from_json_and_from_csv(tmp_path: Path, content: str):
    path = tmp_path / "offsets"
    path.write_text(content, encoding="utf-8")
    assert parse_start(f"file:{path}") == AtOffsets(
        Offsets({("a-b", 0): 5, ("a-b", 1): 6}), origin=f"file:{path}"
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "can be read"),
        (b"\xff\xfe\xff", "UTF-8"),
        (b"secret", "another line 1"),
        (b"t,0,5\nt,1,secret", "something else"),
        (b"t,0,5\nt,0,6", "second one"),
        (b"t,0,-2", "from 0 on"),
        (b"t,0," + b"9" * 30, "from 0 on"),
        (b"{secret", "JSON"),
        (b'{"t": {"0": "secret"}}', "something else"),
        (b'{"t": {"secret": 1}}', "something else"),
        (b't,0,"' + b"5" * 200_000, "lines topic,partition,offset"),
        (b"", "at least one"),
    ],
)
def test_file_that_is_no_table_is_refused_without_showing_what_it_holds(
    tmp_path: Path, content: bytes | None, words: str
):
    path = tmp_path / "offsets.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInputError) as caught:
        parse_start({"file": str(path)})
    assert words in caught.value.problem
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("shift", [{}, {"records": 1, "ms": 1}])
def test_shift_is_by_records_or_by_a_time(shift: dict[str, int]):
    with pytest.raises(BadInputError, match="exactly one"):
        Shifted(**shift)
