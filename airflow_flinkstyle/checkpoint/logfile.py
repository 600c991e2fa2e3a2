"""What offset log, commit log and metadata have in common: text, a version line, compact JSON. Pure."""

from __future__ import annotations

import json
from typing import Any

from airflow_flinkstyle.checkpoint.errors import CHECKPOINT_UNSUPPORTED_VERSION, LogFormatError

_MOST_DIGITS = 18
"""Of any number that Spark writes; Python refuses thousands with an exception of its own."""


def split_version(text: str, what: str, known: tuple[int, ...]) -> tuple[int, str]:
    """Return the version in the first line and everything behind it.

    Raises:
        LogFormatError: If the text is empty, has no version line or nothing behind it.
        FlinkstyleError: ``CHECKPOINT_UNSUPPORTED`` if the version is not one of ``known``.
    """
    first, newline, rest = text.partition("\n")
    if not text:
        raise LogFormatError.of(what, "a version line", "an empty file")
    digits = first.removeprefix("v")
    if first == digits or not is_number(digits):
        raise LogFormatError.of(what, "a version line like 'v1'", first)
    version = int(digits)
    if version not in known:
        names = ", ".join(f"v{number}" for number in known)
        raise CHECKPOINT_UNSUPPORTED_VERSION.error(what=what, found=version, known=names)
    if not newline or not rest:
        raise LogFormatError.of(what, "content behind the version line", text)
    return version, rest


def is_number(text: str) -> bool:
    """Tell whether the text is a number of digits alone, as Spark writes versions and partitions."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def json_object(text: str, what: str) -> dict[str, Any]:
    """Parse one JSON object; raises ``LogFormatError`` for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LogFormatError.of(what, "a JSON object", text) from error
    if not isinstance(value, dict):
        raise LogFormatError.of(what, "a JSON object", text)
    return value


def compact_json(value: object) -> str:
    """Render JSON the way Spark does: no spaces, no escapes beyond the necessary.

    Raises:
        LogFormatError: If it holds half of a surrogate pair, which no file can.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise LogFormatError.of("JSON", "whole characters", ascii(text)) from error
    return text
