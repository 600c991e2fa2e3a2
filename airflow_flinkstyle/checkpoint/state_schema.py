"""``state/<operator>/0/_metadata/schema``: what a store's keys are made of. Pure.

Spark writes it in partition 0 alone: the key's schema and the value's, as JSON behind binary lengths
(``StateSchemaCompatibilityChecker``). Only one thing is read: whether there are keys at all. An operator
without them has one partition, whatever number is recorded.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_BEGIN: Final = b'{"type":"struct","fields":['
_NO_KEYS: Final = frozenset({"sessionStartTime"})
"""Fields that Spark itself puts into the keys of sessions."""


def has_keys(operator: str, paths: Collection[str], read: Callable[[str], bytes]) -> bool:
    """Tell whether an operator surely has keys; False if it has none, or if nothing tells.

    Args:
        operator: Its number.
        paths: All files of the checkpoint.
        read: Returns a file's content.
    """
    root = f"state/{operator}/"
    if any(path.startswith(f"{root}_stateSchema/") for path in paths):
        return True  # transformWithState, and joins: they have keys always
    schemas = [path for path in paths if path.startswith(f"{root}0/") and path.endswith("/_metadata/schema")]
    return any(_names_keys(read(path)) for path in schemas)


def _names_keys(content: bytes) -> bool:
    """Return whether the first schema in the file, the key's, has fields other than Spark's own."""
    begin = content.find(_BEGIN)
    if begin < 0:
        return False
    try:
        fields = json.JSONDecoder().raw_decode(content[begin:].decode("utf-8", "replace"))[0]["fields"]
        return any(field["type"] != "void" and field["name"] not in _NO_KEYS for field in fields)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False  # a schema too long for one piece, or not Spark's: then it does not tell
