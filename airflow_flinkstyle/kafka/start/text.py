"""Start positions from text, a mapping or a file: operators, the DAG's form and the CLI read the same."""

from __future__ import annotations

import csv
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
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.python_versions import moment_of
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Callable

    SavepointOffsets = Callable[[str], AtOffsets]
    """Finds the offsets of ``ID`` or ``ID/QUERY/SOURCE``; this folder knows no savepoints."""
    from airflow_flinkstyle.types import TopicPartition

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
_OLDEST_MS = 100_000_000_000  # March 1973; a smaller number is most likely in seconds
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
        savepoint: Finds the offsets of ``savepoint:...``; without it such a start is refused.

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
        savepoint: Finds the offsets of ``savepoint:...``.

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


_HEADER = ("topic", "partition", "offset")
_MOST_BYTES = 64 * 1024 * 1024
_LARGEST = 2**63 - 1


def read_table(path: Path) -> Offsets:
    """Read a file: JSON as ``table_of`` reads it, else CSV lines ``topic,partition,offset``.

    That is Spark's ``startingOffsets`` and what ``kafka-consumer-groups.sh --reset-offsets --export``
    writes for one group. Messages name lines, never their content: the path may be wrong.

    Raises:
        BadInputError: If the file cannot be read, or is neither.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _bad_table(f"file {path}", f"at most {_MOST_BYTES} bytes", f"{path.stat().st_size}")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise _bad_table(f"file {path}", "UTF-8 text that can be read", type(error).__name__) from error
    if text.lstrip().startswith("{"):
        try:
            return table_of(json.loads(text), f"file {path}", shown=False)
        except (ValueError, RecursionError) as error:
            raise _bad_table(f"file {path}", "JSON", type(error).__name__) from error
    try:
        return _from_csv(text, path)
    except csv.Error as error:
        raise _bad_table(
            f"file {path}", "lines topic,partition,offset", f"something else ({error})"
        ) from error


def _from_csv(text: str, path: Path) -> Offsets:
    found: dict[TopicPartition, NextOffset] = {}
    for line, row in enumerate(csv.reader(text.splitlines()), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (not found and tuple(cells) == _HEADER):
            continue
        if len(cells) != len(_HEADER) or not cells[0]:
            raise _bad_table(f"file {path}", "lines topic,partition,offset", f"another line {line}")
        where = f"line {line} of file {path}"
        tp = (cells[0], _count(cells[1], where, shown=False))
        if tp in found:
            raise _bad_table(
                f"file {path}", "one line per partition", f"a second one for the same, line {line}"
            )
        found[tp] = NextOffset(_count(cells[2], where, shown=False))
    return _filled(found, f"file {path}")


def table_of(value: object, where: str, *, shown: bool = True) -> Offsets:
    """Read a mapping topic -> partition -> offset.

    Raises:
        BadInputError: If it has another shape, no entry, or an offset that is no number from 0 on.
    """
    if not isinstance(value, Mapping) or not all(isinstance(parts, Mapping) for parts in value.values()):
        raise _bad_table(where, "a mapping topic -> partition -> offset", type(value).__name__)
    found = {
        (str(topic), _count(number, where, shown=shown)): NextOffset(_count(offset, where, shown=shown))
        for topic, parts in value.items()
        for number, offset in parts.items()
    }
    return _filled(found, where)


def _filled(found: dict[TopicPartition, NextOffset], where: str) -> Offsets:
    if not found:
        raise _bad_table(where, "at least one offset", "none")
    return Offsets(found)


def _count(value: object, where: str, *, shown: bool = True) -> int:
    text = str(value)
    good = (
        text.isascii()
        and text.isdecimal()
        and not isinstance(value, bool)
        and len(text) <= len(str(_LARGEST))
    )
    if not good or int(text) > _LARGEST:
        found = f"{value!r:.50}" if shown else "something else"
        raise _bad_table(where, "whole numbers from 0 on as partitions and offsets", found)
    return int(text)


def _bad_table(where: str, expected: str, found: str) -> BadInputError:
    return BadInputError(
        f"The table of offsets ({where}) should have {expected}, but there is {found}.",
        state_after=NOTHING_CHANGED,
        remedy="Give the offset of the next record to read for every partition; the oldest and the newest "
        "are the starts earliest and latest.",
    )
