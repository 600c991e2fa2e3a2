"""Tables of offsets: a mapping, or a file in JSON or CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.errors import NOTHING_CHANGED
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.types import TopicPartition

_HEADER = ("topic", "partition", "offset")
_MOST_BYTES = 64 * 1024 * 1024
_LARGEST = 2**63 - 1


def read_table(path: Path) -> Offsets:
    """Read a file: JSON as ``table_of`` has it, else CSV lines ``topic,partition,offset``.

    That is Spark's ``startingOffsets`` and what ``kafka-consumer-groups.sh --reset-offsets --export``
    writes for one group. Messages name lines, never their content: the path may be wrong.

    Raises:
        BadInputError: If the file cannot be read, or is neither.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _bad(f"file {path}", f"at most {_MOST_BYTES} bytes", f"{path.stat().st_size}")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise _bad(f"file {path}", "UTF-8 text that can be read", type(error).__name__) from error
    if text.lstrip().startswith("{"):
        try:
            return table_of(json.loads(text), f"file {path}", shown=False)
        except (ValueError, RecursionError) as error:
            raise _bad(f"file {path}", "JSON", type(error).__name__) from error
    try:
        return _from_csv(text, path)
    except csv.Error as error:
        raise _bad(f"file {path}", "lines topic,partition,offset", f"something else ({error})") from error


def _from_csv(text: str, path: Path) -> Offsets:
    found: dict[TopicPartition, NextOffset] = {}
    for line, row in enumerate(csv.reader(text.splitlines()), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (not found and tuple(cells) == _HEADER):
            continue
        if len(cells) != len(_HEADER) or not cells[0]:
            raise _bad(f"file {path}", "lines topic,partition,offset", f"another line {line}")
        where = f"line {line} of file {path}"
        tp = (cells[0], _count(cells[1], where, shown=False))
        if tp in found:
            raise _bad(f"file {path}", "one line per partition", f"a second one for the same, line {line}")
        found[tp] = NextOffset(_count(cells[2], where, shown=False))
    return _filled(found, f"file {path}")


def table_of(value: object, where: str, *, shown: bool = True) -> Offsets:
    """Read a mapping topic -> partition -> offset.

    Raises:
        BadInputError: If it has another shape, no entry, or an offset that is no number from 0 on.
    """
    if not isinstance(value, Mapping) or not all(isinstance(parts, Mapping) for parts in value.values()):
        raise _bad(where, "a mapping topic -> partition -> offset", type(value).__name__)
    found = {
        (str(topic), _count(number, where, shown=shown)): NextOffset(_count(offset, where, shown=shown))
        for topic, parts in value.items()
        for number, offset in parts.items()
    }
    return _filled(found, where)


def _filled(found: dict[TopicPartition, NextOffset], where: str) -> Offsets:
    if not found:
        raise _bad(where, "at least one offset", "none")
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
        raise _bad(where, "whole numbers from 0 on as partitions and offsets", found)
    return int(text)


def _bad(where: str, expected: str, found: str) -> BadInputError:
    return BadInputError(
        f"The table of offsets ({where}) should have {expected}, but there is {found}.",
        state_after=NOTHING_CHANGED,
        remedy="Give the offset of the next record to read for every partition; the oldest and the newest "
        "are the starts earliest and latest.",
    )
