"""Delta's log of the schemas that a source follows (``schemaTrackingLocation``). Pure.

Delta wants it below the checkpoint. The agent keeps it in ``sources/schema/<name>``, by the last part of the
location that the script names, so that savepoints hold it like the other files of sources. Each entry
(``_schema_log_<table>/<number>``) names the place of its source in the checkpoint, and Delta refuses a log of
another place: a copy of the checkpoint differs there. Delta: ``DeltaSourceMetadataTrackingLog``.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.checkpoint.errors import LogFormatError
from airflow_flinkstyle.checkpoint.logfile import compact_json, json_object, split_version
from airflow_flinkstyle.checkpoint.operator_metadata import hadoop_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

FOLDER: Final = "sources/schema/"
KNOWN_VERSIONS = (1,)
_ENTRY = re.compile(r"sources/schema/(?P<log>.+/_schema_log_[^/]+)/(?P<number>\d+)")
_FILES, _CHANGE, _AFTER_CHANGE = 0, -20, -19
"""Indexes in Delta's offsets of a version: its first file; its change of the schema; behind that."""
_PLACE: Final = "sourceMetadataPath"
_PLACE_IN_CHECKPOINT = re.compile(r"/(sources/\d+)$")


def is_entry(path: str) -> bool:
    """Tell whether the file at ``path`` is an entry of such a log."""
    return _ENTRY.fullmatch(path) is not None


def parse(path: str, content: bytes) -> dict[str, Any]:
    """Return an entry's fields.

    Raises:
        LogFormatError: If it is malformed.
        FlinkstyleError: ``CHECKPOINT_UNSUPPORTED`` if its version is newer than 1.
    """
    try:
        _, body = split_version(content.decode(), f"Schema log {path}", KNOWN_VERSIONS)
    except UnicodeDecodeError as error:
        raise LogFormatError.of(path, "UTF-8 text", content[:40].hex()) from error
    fields = json_object(body, path)
    if type(fields.get("deltaCommitVersion")) is not int or not isinstance(fields.get("tableId"), str):
        raise LogFormatError.of(path, "a schema's tableId and deltaCommitVersion", body)
    return fields


def relocate(path: str, content: bytes, root: str) -> bytes:
    """Return an entry as it must be in a checkpoint at ``root``, a store's ``uri``."""
    fields = parse(path, content)
    place = fields.get(_PLACE)
    if place is None:
        return content
    match = _PLACE_IN_CHECKPOINT.search(str(place))
    if match is None:
        raise LogFormatError.of(path, f"{_PLACE} below a checkpoint's sources/", str(place))
    head = content.decode().partition("\n")[0]
    moved = f"{hadoop_root(root, str(place))}/{match[1]}"
    return f"{head}\n{compact_json({**fields, _PLACE: moved})}".encode()


def entries_up_to(
    paths: Iterable[str], offsets: Iterable[str], read: Callable[[str], bytes]
) -> Mapping[str, bytes | None]:
    """Return the entries that belong to a cut, with their content, and None for those that came after it.

    Delta adds an entry once a batch has committed that ends at a change of the schema. One that the cut has
    not come to is left to Delta to add again: with it, rows from before the change would be read by the
    schema after it, without the columns that were dropped. The first entry is the source's first schema.

    Args:
        paths: Of the checkpoint's files; others than entries are left out.
        offsets: The lines of the sources in the offset log of the cut.
        read: Reads one.
    """
    reached = [position for position in map(_reached, offsets) if position is not None]
    found: dict[str, bytes | None] = {}
    for path in paths:
        if match := _ENTRY.fullmatch(path):
            content = read(path)
            fields = parse(path, content)
            table, version = fields["tableId"], fields["deltaCommitVersion"]
            is_old = int(match["number"]) == 0 or any(
                source_table == table and (at, is_within) >= (version, True)
                for source_table, at, is_within in reached
            )
            found[path] = content if is_old else None
    return found


def _reached(raw: str) -> tuple[str, int, bool] | None:
    """Return how far a source of Delta is: table, version, and whether it has come to a change in that."""
    try:
        fields = json.loads(raw)
        return fields["reservoirId"], fields["reservoirVersion"], _has_changed(fields["index"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _has_changed(index: int) -> bool:
    return index >= _FILES or index in (_CHANGE, _AFTER_CHANGE)


def same_schema(one: bytes, other: bytes) -> bool:
    """Return whether two entries describe the same schema, wherever their checkpoints are."""
    return _without_place(one) == _without_place(other)


def _without_place(content: bytes) -> str:
    fields = {**parse("an entry", content), _PLACE: None}
    return json.dumps(fields, sort_keys=True)
