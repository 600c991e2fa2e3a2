"""Numbers and names as people read them, in logs, errors, tables and approvals. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_UNITS: Final = ("bytes", "kB", "MB", "GB", "TB", "PB")
_MARKUP: Final = re.compile(r"[\\`*\[\]|~]|<(?=[a-z/!?])|(?<!\w)_|_(?!\w)", re.IGNORECASE)
_ENTITY: Final = re.compile(r"&(?=#?\w+;)")


def size(size_bytes: int) -> str:
    """Return an amount of bytes in the unit that keeps it short, powers of 1,000: ``5.0 kB``."""
    if size_bytes == 1:
        return "1 byte"
    amount, unit = float(size_bytes), 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{size_bytes} bytes" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number of things: ``1 batch``, ``2,000 batches``."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"


def age(seconds: float) -> str:
    """Return a span of time in its largest unit, rounded down: ``3 min``."""
    for unit_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{seconds // unit_s:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


def moment(at_ms: int) -> str:
    """Return a moment to the second: ``2026-11-26 09:30:00 UTC``."""
    return datetime.fromtimestamp(at_ms / 1000, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def batch_words(found: Mapping[str, int]) -> str:
    """Return the newest batch of each query, within a sentence: ``batch 473 of counts``."""
    listed = ", ".join(f"batch {batch} of {query}" for query, batch in sorted(found.items()))
    return listed or "no batch"


def escape(text: str) -> str:
    """Return a text that markdown shows as it is: no markup, no HTML, no end of a table's cell."""
    return _ENTITY.sub("&amp;", _MARKUP.sub(r"\\\g<0>", text)).replace("\n", " ")


def row(cells: Iterable[object]) -> str:
    """Return a row of a markdown table that shows its cells as they are."""
    return f"| {' | '.join(escape(str(cell)) for cell in cells)} |"
