"""Start positions from text or a mapping: operators, the DAG's form and the CLI read the same."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.errors import NOTHING_CHANGED
from airflow_flinkstyle.kafka.start.kinds import (
    AtOffsets,
    AtTimestamp,
    Earliest,
    FromGroup,
    Latest,
    Shifted,
    Start,
    StartRules,
)
from airflow_flinkstyle.kafka.start.offset_table import read_table, table_of
from airflow_flinkstyle.python_versions import moment_of

if TYPE_CHECKING:
    from collections.abc import Callable

    SavepointOffsets = Callable[[str], AtOffsets]
    """What finds the offsets of ``ID`` or ``ID/QUERY/SOURCE``: this room knows no savepoints."""

FORMS = (
    "earliest, latest, timestamp:2026-11-21T10:00:00Z[:after_last=latest], "
    "group:NAME[:missing=earliest|latest], "
    'offsets:{"topic": {"0": 17}}, file:PATH (JSON or CSV), savepoint:ID[/QUERY/SOURCE], '
    "shift:-100 (records), shift:-5m (ms, s, m, h, d)"
)
"""Every way to write a start position."""

_ANY = "one of the known forms"
_MS_PER_UNIT = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MOST_DIGITS = 15
_OLDEST_MS = 100_000_000_000  # March 1973; a smaller number is seconds somebody took for milliseconds
_CHOICE = re.compile(r"(?P<value>.+):(?P<name>missing|after_last)=(?P<choice>\w+)", re.DOTALL)
_CHOICES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "group": ("missing", ("refuse", "earliest", "latest")),
    "timestamp": ("after_last", ("refuse", "latest")),
}
_KINDS = ("timestamp", "group", "offsets", "file", "savepoint", "shift")
_PLAIN: Mapping[str, Start] = {"earliest": Earliest(), "latest": Latest()}
_RULES = frozenset(("default", "topics", "partitions"))


def parse_rules(value: object, *, savepoint: SavepointOffsets | None = None) -> StartRules:
    """Read which start each partition takes.

    Args:
        value: One start for all partitions; or a mapping (or its JSON text) with any of ``default``: a
            start, ``topics``: topic -> start, ``partitions``: topic -> partition -> start.
        savepoint: What finds the offsets of ``savepoint:...``; without it such a start is refused.

    Raises:
        BadInputError: Naming what was found, and every way to write a start.
    """
    value = _unwrapped(value)
    if not (isinstance(value, Mapping) and value and value.keys() <= _RULES):
        return StartRules(default=parse_start(value, savepoint=savepoint))

    def start(text: object) -> Start:
        return parse_start(text, savepoint=savepoint)

    by_partition = {topic: _mapping(parts) for topic, parts in _mapping(value.get("partitions", {})).items()}
    return StartRules(
        default=start(value["default"]) if value.get("default") is not None else None,
        topics={str(topic): start(text) for topic, text in _mapping(value.get("topics", {})).items()},
        partitions={
            (str(topic), _number(number, "a partition number")): start(text)
            for topic, parts in by_partition.items()
            for number, text in parts.items()
        },
    )


def parse_start(value: object, *, savepoint: SavepointOffsets | None = None) -> Start:
    """Read one start.

    Args:
        value: As in ``FORMS``, or the same as a mapping with one kind, such as ``{"group": "a:b",
            "missing": "latest"}``, where nothing in a name can be taken for syntax.
        savepoint: What finds the offsets of ``savepoint:...``.

    Raises:
        BadInputError: Naming what was found, and every way to write a start.
    """
    value = _unwrapped(value)
    if isinstance(value, Mapping):
        return _from_mapping(value, savepoint)
    if not isinstance(value, str):
        raise _bad(_ANY, value)
    text = value.strip()
    kind, colon, rest = text.partition(":")
    if not colon:
        if kind not in _PLAIN:
            raise _bad(_ANY, value)
        return _PLAIN[kind]
    found = _CHOICE.fullmatch(rest) if kind in _CHOICES else None
    if found is not None:
        return _from_mapping({kind: found["value"], found["name"]: found["choice"]}, savepoint)
    return _from_mapping({kind: rest}, savepoint)


def _from_mapping(fields: Mapping[str, Any], savepoint: SavepointOffsets | None) -> Start:
    kind = next((kind for kind in _KINDS if kind in fields), "")
    if not kind or fields.keys() - {kind, _CHOICES.get(kind, ("",))[0]}:
        raise _bad(_ANY, dict(fields))
    value, choice = fields[kind], _choice(kind, fields)
    match kind:
        case "timestamp":
            return AtTimestamp(_timestamp_ms(value), **choice)
        case "group":
            return FromGroup(_name(value), **choice)
        case "offsets":
            return AtOffsets(table_of(_json(value) if isinstance(value, str) else value, "offsets"))
        case "file":
            return AtOffsets(read_table(Path(_name(value))), origin=f"file:{value}")
        case "savepoint" if savepoint is not None:
            return savepoint(_name(value))
        case "shift":
            return _shift(str(value))
        case _:
            raise _bad("a start that needs no savepoint", f"{kind}:{value}")


def _choice(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    name, allowed = _CHOICES.get(kind, ("", ()))
    if name not in fields:
        return {}
    if fields[name] not in allowed:
        raise _bad(f"{name} to be one of {', '.join(allowed)}", fields[name])
    return {name: fields[name]}


def _timestamp_ms(value: object) -> int:
    text = str(value).strip()
    if text.isdecimal() and len(text) <= _MOST_DIGITS:
        if int(text) < _OLDEST_MS:
            raise _bad("a timestamp in milliseconds since 1970", f"{text}, which may be seconds")
        return int(text)
    try:
        moment = moment_of(text)
    except ValueError as error:
        raise _bad("a timestamp as ISO 8601 or in milliseconds since 1970", value) from error
    if moment.tzinfo is None:
        raise _bad("a timestamp with its time zone (Z, +02:00)", value)
    return int(moment.timestamp() * 1000)


def _shift(text: str) -> Shifted:
    found = re.fullmatch(r"([+-]?\d{1,15})(ms|s|m|h|d)?", text.strip())
    if found is None:
        raise _bad("a shift such as -100 (records) or -5m (ms, s, m, h, d)", text)
    number, unit = int(found[1]), found[2]
    return Shifted(ms=number * _MS_PER_UNIT[unit]) if unit else Shifted(records=number)


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _bad("a name", value)
    return value


def _number(value: object, what: str) -> int:
    if isinstance(value, bool) or not str(value).isdecimal() or len(str(value)) > _MOST_DIGITS:
        raise _bad(what, value)
    return int(str(value))


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _bad("topics as topic -> start, partitions as topic -> partition -> start", value)
    return value


def _unwrapped(value: object) -> object:
    """Return what JSON text represents: forms and command lines can only pass text."""
    return _json(value) if isinstance(value, str) and value.lstrip().startswith("{") else value


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad("JSON", text) from error


def _bad(expected: str, found: object) -> BadInputError:
    return BadInputError(
        f"A start position should be {expected}, but there is {found!r:.200}.",
        state_after=NOTHING_CHANGED,
        remedy=f"Write it as {FORMS}.",
    )
