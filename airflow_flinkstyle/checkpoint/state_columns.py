"""What a query's state is made of: the columns of each store's keys and values, and how two versions differ.

Spark writes a store's schemas as JSON behind binary lengths (``SchemaHelper``): in ``state/<operator>/0/.../
_metadata/schema`` (v2: the key's and the value's), and for stores of several column families in
``state/<operator>/_stateSchema/<store>/<batch>_<uuid>`` (v3: both of each family, by name). Pure.
"""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

_FLAT = re.compile(r"state/(?P<operator>\d+)/0(?P<store>(/[^/]+)?)/_metadata/schema")
_FAMILIES = re.compile(r"state/(?P<operator>\d+)/_stateSchema/[^/]+/(?P<batch>\d+)_[^/]+")
_WIDER: Final = (("byte", "short", "integer", "long"), ("float", "double"))
_PIECE: Final = 16_000
_TYPE: Final = re.compile(r"\b(\w+?)Type\b")

Columns = dict[str, str]
"""Name, with those around it and ``key`` or ``value`` in front -> type, as Spark writes it in JSON."""


def read_columns(paths: Collection[str], read: Callable[[str], bytes]) -> dict[str, Columns]:
    """Return the columns by store: the operator's number, and a store's or family's name.

    Args:
        paths: All files of the checkpoint below ``state/``.
        read: Returns a file's content. A schema that is not understood has no columns.
    """
    found: dict[str, Columns] = {}
    newest: dict[str, tuple[int, str]] = {}
    for path in sorted(paths):
        if match := _FLAT.fullmatch(path):
            found[f"{match['operator']}{match['store']}"] = _families(read(path)).get("", {})
        elif match := _FAMILIES.fullmatch(path):
            newest[match["operator"]] = max(
                newest.get(match["operator"], (-1, "")), (int(match["batch"]), path)
            )
    for operator, (_, path) in newest.items():
        found.update({f"{operator}/{name}": columns for name, columns in _families(read(path)).items()})
    return found


def schema_path(operator: int) -> str:
    """Return the file with the schema of an operator that has one store."""
    return f"state/{operator}/0/_metadata/schema"


def flat_schema(key: str, value: str) -> bytes:
    """Return the file of version 2 that holds two schemas, given as Spark's JSON."""
    return b"".join([_written("v2"), *map(_written_in_pieces, (key, value))])


def _written(text: str) -> bytes:
    content = text.encode()
    return struct.pack(">H", len(content)) + content


def _written_in_pieces(text: str) -> bytes:
    """Java takes less than 64 KiB at once; a letter has three bytes at most where it is no emoji."""
    pieces = [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]
    return struct.pack(">i", len(pieces)) + b"".join(map(_written, pieces))


def difference(before: Mapping[str, Columns], now: Mapping[str, Columns]) -> list[str]:
    """Return what has changed, a part of a sentence for each column: added, dropped, renamed, widened."""
    found = []
    for store in sorted(before.keys() | now.keys()):
        if store not in now or store not in before:
            found.append(f"state {store} {'added' if store in now else 'dropped'}")
            continue
        several = f" of state {store}" if len(before.keys() | now.keys()) > 1 else ""
        found += [f"{change}{several}" for change in _changes(before[store], now[store])]
    return found


def of_text(text: str) -> Columns:
    """Return the columns of a schema as Spark's errors show it: ``StructType(StructField(a, ...``."""
    return dict(_flat("", _from_text(text)))


def _changes(before: Columns, now: Columns) -> Iterator[str]:
    dropped, added = [n for n in before if n not in now], [n for n in now if n not in before]
    if [before[name] for name in dropped] == [now[name] for name in added]:
        yield from (f"{old} renamed {new}" for old, new in zip(dropped, added, strict=True))
    else:
        yield from (f"{name} ({now[name]}) added" for name in added)
        yield from (f"{name} ({before[name]}) dropped" for name in dropped)
    for name in before:
        old, new = before[name], now.get(name, before[name])
        if old != new:
            yield f"{name} {'widened' if _is_wider(old, new) else 'changed'} from {old} to {new}"


def _is_wider(old: str, new: str) -> bool:
    return any(old in row and new in row and row.index(new) > row.index(old) for row in _WIDER)


def _families(content: bytes) -> dict[str, Columns]:
    """Return the columns by family; none of a file that is not as expected.

    A file begins with its version. Version 2 holds the two schemas of one store without a name. Version 3
    holds a number of families: name, id and schema of the key, the same of the value, two texts on coding.
    """
    reader = _JavaDataReader(content)
    try:
        version = reader.name()
        if version == "v2":
            return {"": _pair(reader.text(), reader.text())}
        return dict(_family(reader) for _ in range(reader.number("i")))
    except (struct.error, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _family(reader: _JavaDataReader) -> tuple[str, Columns]:
    name, _, key, _, value = (
        *(reader.name(), reader.number("h"), reader.text()),
        *(reader.number("h"), reader.text()),
    )
    reader.text(), reader.text()
    return name, _pair(key, value)


class _JavaDataReader:
    """Reads what Java's ``DataOutputStream`` has written."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def number(self, kind: str) -> int:
        """Return an ``i``nt or a s``h``ort."""
        (found,) = struct.unpack_from(f">{kind}", self._content, self._at)
        self._at += struct.calcsize(f">{kind}")
        return int(found)

    def name(self) -> str:
        """Return a text of less than 64 KiB."""
        size = self.number("H")
        self._at += size
        return self._content[self._at - size : self._at].decode()

    def text(self) -> str:
        """Return a text of any length: it is stored in pieces."""
        return "".join(self.name() for _ in range(self.number("i")))


def _pair(key: str, value: str) -> Columns:
    sides = (("key", json.loads(key)), ("value", json.loads(value)))
    return {name: kind for side, found in sides for name, kind in _flat(side, found)}


def _flat(prefix: str, schema: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401  # JSON
    for field in schema["fields"]:
        name = f"{prefix}.{field['name']}".lstrip(".")
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _flat(name, field["type"])
        else:
            yield name, _type(field["type"])


def _type(kind: Any) -> str:  # noqa: ANN401  # JSON
    if not isinstance(kind, dict):
        return str(kind)
    parts = [kind[name] for name in ("elementType", "keyType", "valueType") if name in kind]
    return f"{kind['type']}({','.join(map(_type, parts))})"


def _from_text(text: str) -> dict[str, Any]:
    """Return the JSON of a schema that is shown as Scala shows it."""
    inner = text.strip().removeprefix("StructType(").removesuffix(")")
    fields = []
    for part in _split(inner):
        name, _, rest = part.strip().removeprefix("StructField(").removesuffix(")").partition(",")
        kind = rest.rpartition(",")[0]
        fields.append(
            {"name": name, "type": _from_text(kind) if "StructType(" in kind[:11] else _scala(kind)}
        )
    return {"type": "struct", "fields": fields}


def _scala(kind: str) -> str:
    """Return ``array(long)`` for ``ArrayType(LongType,true)``: as JSON has it, without what may be null."""
    return _TYPE.sub(lambda match: match[1].lower(), re.sub(r",(true|false)(?=\))", "", kind))


def _split(text: str) -> Iterator[str]:
    """Yield what is between the commas that are in no bracket."""
    depth, begin = 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    if text[begin:].strip():
        yield text[begin:]
