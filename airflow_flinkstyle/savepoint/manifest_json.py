"""A manifest as text. Rendering is deterministic; parsing trusts nothing. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_flinkstyle.protocol.sink_records import SinkLineage, Sinks
from airflow_flinkstyle.savepoint.errors import ManifestFormatError
from airflow_flinkstyle.savepoint.ids import is_job_name, is_savepoint_id
from airflow_flinkstyle.savepoint.manifest import FileEntry, KafkaPosition, Manifest, QuerySnapshot
from airflow_flinkstyle.storage.errors import BadKeyError
from airflow_flinkstyle.storage.keys import checked_key, is_name
from airflow_flinkstyle.types import BatchId, NextOffset

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_READABLE = (1, 2, 3)
_CUT_AND_SINK = _CHECKED = 2
"""The format that brought ``cut_id``, each query's ``sink``, and the manifest's ``checksum``."""
_SINKS = 3
"""The format that brought each query's ``sinks`` in the place of ``sink_lineage``, which was always null."""
_NO_CHECKSUM = "0" * 64
_CHECKSUM = re.compile('"checksum": ?"([0-9a-f]{64})"')


def to_json(manifest: Manifest) -> str:
    """Render the manifest; equal manifests give equal text."""
    fields = {"format_version": Manifest.format_version, "checksum": _NO_CHECKSUM, **asdict(manifest)}
    return with_checksum(json.dumps(fields, sort_keys=True, indent=1) + "\n")


def with_checksum(text: str) -> str:
    """Return a manifest's text with the checksum that belongs to it; it has one already, right or wrong."""
    found = _CHECKSUM.search(text)
    if found is None:
        raise ManifestFormatError.of("the whole", "a field 'checksum'", text[:80])
    return text.replace(found[1], _checksum(text, found[1]), 1)


def _checksum(text: str, found: str) -> str:
    """Return the SHA-256 of the text with zeros in place of the checksum that was found in it."""
    return hashlib.sha256(text.replace(found, _NO_CHECKSUM, 1).encode("utf-8", "surrogatepass")).hexdigest()


def from_json(text: str) -> Manifest:
    """Parse a manifest of format 1 to 3; a manifest is never changed, so nothing writes the older ones again.

    Raises:
        ManifestFormatError: If it is malformed, of a newer format, has fields this package does not know,
            names that are none, or paths that would leave the checkpoint (``..``, absolute, backslash,
            empty), or if a byte of it was changed.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ManifestFormatError.of("the whole", "a JSON object", text[:80]) from error
    fields = _Fields(document, "the whole")
    version = fields.take("format_version", int)
    if version not in _READABLE:
        raise ManifestFormatError.of("format_version", " or ".join(map(str, _READABLE)), version)
    checksum = fields.take("checksum", str, check=_is_sha256) if version >= _CHECKED else None
    manifest = Manifest(
        savepoint_id=fields.take("savepoint_id", str, check=is_savepoint_id),
        job=fields.take("job", str, check=is_job_name),
        parent=fields.take_or_none("parent", str, check=is_savepoint_id),
        alignment="aligned" if fields.take("alignment", str, check=_is_alignment) == "aligned" else "none",
        taken_at_ms=fields.take("taken_at_ms", int),
        taken_from_generation=fields.take_or_none("taken_from_generation", int),
        spark_version=fields.take("spark_version", str),
        evidence=fields.take_map("evidence", _text),
        cut_id=fields.take_or_none("cut_id", str, check=is_name) if version >= _CUT_AND_SINK else None,
        queries=fields.take_list("queries", partial(_query, version=version)),
    )
    fields.require_empty()
    _require_unique("queries", [query.name for query in manifest.queries])
    if checksum is not None and checksum != _checksum(text, checksum):
        raise ManifestFormatError.of("checksum", _checksum(text, checksum), checksum)
    return manifest


class _Fields:
    """The fields of one JSON object, taken one by one, so that what is left over is noticed."""

    def __init__(self, document: object, where: str) -> None:
        if not isinstance(document, dict):
            raise ManifestFormatError.of(where, "a JSON object", document)
        self._left: dict[str, Any] = dict(document)
        self._where = where

    def take(self, name: str, kind: type[_T], *, check: Callable[[_T], bool] | None = None) -> _T:
        """Take a field of exactly this type; ``check`` tells whether its value is allowed."""
        if name not in self._left:
            raise ManifestFormatError.of(self._where, f"a field {name!r}", sorted(self._left))
        value = self._left.pop(name)
        if type(value) is not kind or (check is not None and not check(value)):
            raise ManifestFormatError.of(f"{self._where}, {name}", f"a valid {kind.__name__}", value)
        return value

    def take_or_none(
        self, name: str, kind: type[_T], *, check: Callable[[_T], bool] | None = None
    ) -> _T | None:
        """Take a field that may be null."""
        if name in self._left and self._left[name] is None:
            del self._left[name]
            return None
        return self.take(name, kind, check=check)

    def take_map(self, name: str, parse: Callable[[object, str], _T]) -> dict[str, _T]:
        """Take an object whose values all have the same form."""
        where = f"{self._where}, {name}"
        return {key: parse(value, f"{where}, {key}") for key, value in self.take(name, dict).items()}

    def take_list(self, name: str, parse: Callable[[object, str], _T]) -> tuple[_T, ...]:
        """Take a list whose items all have the same form."""
        where = f"{self._where}, {name}"
        items = self.take(name, list)
        return tuple(parse(item, f"{where}[{position}]") for position, item in enumerate(items))

    def require_empty(self) -> None:
        """Refuse fields that nobody took."""
        if self._left:
            raise ManifestFormatError.of(self._where, "no further fields", sorted(self._left))


def _query(document: object, where: str, *, version: int) -> QuerySnapshot:
    fields = _Fields(document, where)
    if version < _SINKS:
        fields.take_or_none("sink_lineage", str)
    query = QuerySnapshot(
        name=fields.take("name", str, check=is_name),
        query_id=fields.take("query_id", str, check=bool),
        batch_id=BatchId(fields.take("batch_id", int, check=_not_negative)),
        checkpoint_location=fields.take("checkpoint_location", str),
        pending_offsets=fields.take_or_none("pending_offsets", str),
        pinned_confs=fields.take_map("pinned_confs", _text),
        kafka=fields.take_map("kafka", _kafka),
        sink=fields.take_or_none("sink", str, check=bool) if version >= _CUT_AND_SINK else None,
        sinks=_sinks(fields, where) if version >= _SINKS else None,
        files=fields.take_list("files", _file),
    )
    fields.require_empty()
    _require_unique(f"{where}, files", [entry.path for entry in query.files])
    return query


def _sinks(query: _Fields, where: str) -> Sinks | None:
    document = query.take_or_none("sinks", dict)
    if document is None:
        return None
    fields = _Fields(document, f"{where}, sinks")
    sinks = Sinks(
        lineages=fields.take_list("lineages", _lineage),
        begins=fields.take("begins", str),
        under_way=fields.take("under_way", bool),
    )
    fields.require_empty()
    _require_unique(f"{where}, sinks", [one.lineage for one in sinks.lineages])
    return sinks


def _lineage(document: object, where: str) -> SinkLineage:
    fields = _Fields(document, where)
    found = SinkLineage(
        lineage=fields.take("lineage", str, check=bool),
        shards=fields.take("shards", int, check=_is_positive),
        control_topic=fields.take("control_topic", str, check=bool),
        cluster_id=fields.take("cluster_id", str, check=bool),
        completed_batch=fields.take("completed_batch", int, check=_is_batch_or_none_yet),
        markers=_by_partition(_offset)(fields.take("markers", dict), f"{where}, markers"),
    )
    fields.require_empty()
    return found


def _file(document: object, where: str) -> FileEntry:
    fields = _Fields(document, where)
    entry = FileEntry(
        path=fields.take("path", str, check=_is_safe_key),
        size_bytes=fields.take("size_bytes", int, check=_not_negative),
        blob=fields.take("blob", str, check=_is_safe_key),
        digest=fields.take_or_none("digest", str, check=_is_digest),
    )
    fields.require_empty()
    return entry


def _kafka(document: object, where: str) -> KafkaPosition:
    fields = _Fields(document, where)
    position = KafkaPosition(
        cluster_id=fields.take("cluster_id", str, check=bool),
        topic_ids=fields.take_map("topic_ids", _text),
        offsets=fields.take_map("offsets", _by_partition(_offset)),
        log_range=fields.take_map("log_range", _by_partition(_range)),
    )
    fields.require_empty()
    return position


def _by_partition(parse: Callable[[object, str], _T]) -> Callable[[object, str], dict[int, _T]]:
    def parse_all(document: object, where: str) -> dict[int, _T]:
        if not isinstance(document, dict) or not all(_is_partition(key) for key in document):
            raise ManifestFormatError.of(where, "an object by partition number", document)
        return {int(key): parse(value, f"{where}, {key}") for key, value in document.items()}

    return parse_all


def _is_partition(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 10


def _offset(value: object, where: str) -> NextOffset:
    if type(value) is not int or value < 0:
        raise ManifestFormatError.of(where, "an offset", value)
    return NextOffset(value)


def _range(value: object, where: str) -> tuple[NextOffset, NextOffset]:
    if not isinstance(value, list) or len(value) != 2:
        raise ManifestFormatError.of(where, "earliest and end offset", value)
    return _offset(value[0], where), _offset(value[1], where)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ManifestFormatError.of(where, "a string", value)
    return value


def _is_safe_key(value: str) -> bool:
    try:
        checked_key(value)
    except BadKeyError:
        return False
    return True


def _is_sha256(value: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", value) is not None


def _is_digest(value: str) -> bool:
    kind, _, digest = value.partition(":")
    return bool(digest) and (kind != "sha256" or _is_sha256(digest))


def _is_positive(value: int) -> bool:
    return value > 0


def _is_batch_or_none_yet(value: int) -> bool:
    return value >= -1


def _not_negative(value: int) -> bool:
    return value >= 0


def _is_alignment(value: str) -> bool:
    return value in {"aligned", "none"}


def _require_unique(where: str, names: list[str]) -> None:
    for name in {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ():
        raise ManifestFormatError.of(where, "each name once", name)
