"""What tells the records of a topic apart: their key, value, a header, or a part of the value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError

if TYPE_CHECKING:
    from airflow_flinkstyle.kafka.reading import KafkaMessage

Ident = Callable[["KafkaMessage"], bytes | None]
"""Returns a record's id; None if it has none."""


def by_key(record: KafkaMessage) -> bytes | None:
    """Take the key for the id."""
    return record.key()


def by_value(record: KafkaMessage) -> bytes | None:
    """Take the whole value for the id."""
    return record.value()


def by_header(name: str) -> Ident:
    """Take a header for the id; of several with that name the last, as consumers do."""

    def ident(record: KafkaMessage) -> bytes | None:
        return dict(record.headers() or ()).get(name)

    return ident


def by_json(field: str) -> Ident:
    """Take a field of the value for the id; ``order.number`` is a field of a field.

    A text counts as it is, everything else as JSON writes it: the number 7 and the text "7" are one id.
    """
    path = field.split(".")

    def ident(record: KafkaMessage) -> bytes | None:
        try:
            found: Any = json.loads(record.value() or b"")
            for name in path:
                found = found[name]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        text = found if isinstance(found, str) else json.dumps(found, sort_keys=True)
        return None if found is None else text.encode(errors="surrogatepass")

    return ident


def by_regex(pattern: str) -> Ident:
    """Take what a pattern finds in the value for the id: its first group, or all that it matches."""
    try:
        compiled = re.compile(pattern.encode())
    except re.error as error:
        raise _unusable(f"regex:{pattern}, which is no pattern ({error})") from error

    def ident(record: KafkaMessage) -> bytes | None:
        found = compiled.search(record.value() or b"")
        return found[min(1, compiled.groups)] if found else None

    return ident


_PLAIN: dict[str, Ident] = {"key": by_key, "value": by_value}
_WITH: dict[str, Callable[[str], Ident]] = {"header": by_header, "json": by_json, "regex": by_regex}


def parse_ident(text: str) -> Ident:
    """Return how ids are read, from ``key``, ``value``, ``header:NAME``, ``json:FIELD`` or ``regex:PATTERN``.

    Raises:
        BadInputError: If it is none of these.
    """
    kind, _, argument = text.partition(":")
    if text in _PLAIN:
        return _PLAIN[text]
    if kind in _WITH and argument:
        return _WITH[kind](argument)
    raise _unusable(text)


def _unusable(found: str) -> BadInputError:
    return BadInputError(
        f"An id was expected to be key, value, header:NAME, json:FIELD or regex:PATTERN, found {found}.",
        state_after="Nothing was read.",
        remedy="Name what tells the records of the topic apart.",
    )
