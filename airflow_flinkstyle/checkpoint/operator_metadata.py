"""``state/<operator>/_metadata``: what Spark recorded about an operator's stores, in two versions. Pure.

v1 (``metadata``, Spark 4.0) counts stores and partitions. v2 (``v2/<batch>``; transformWithState, and joins
that keep one store) also names the files with the stores' schemas, by absolute path, so that a copy would
read, and miss, the original's: ``relocate`` rewrites them. Spark: ``OperatorStateMetadata``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.checkpoint.errors import (
    CHECKPOINT_UNSUPPORTED,
    LogFormatError,
    StateIncompleteError,
)
from airflow_flinkstyle.checkpoint.logfile import compact_json, json_object, split_version

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from airflow_flinkstyle.types import BatchId

KNOWN_VERSIONS = (1, 2)
_METADATA = re.compile(r"(?P<operator>state/\d+)/_metadata/(metadata|v2/(?P<batch>\d+))")
_SCHEMAS: Final = "stateSchemaFilePaths"
_S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorMetadata:
    """One operator's stores."""

    path: str
    """Where it was read."""
    folder: str
    """``state/<operator>``."""
    stores: tuple[str, ...]
    """Name of each store; ``default`` if there is only one."""
    partitions: int
    """Their number when the query was first run; a repartition does not change it."""
    schemas: tuple[str, ...]
    """Schema files, relative to the checkpoint root."""

    def store_paths(self, partitions: int) -> Iterator[str]:
        """Yield the folder of each store in each of so many partitions."""
        for name in self.stores:
            inner = "" if name == "default" else f"/{name}"
            for partition in range(partitions):
                yield f"{self.folder}/{partition}{inner}"


def metadata_paths(paths: Collection[str], batch: BatchId) -> list[str]:
    """Return the metadata in force after ``batch``, one file for each operator that has any.

    What a later batch wrote describes the stores after that batch.

    Raises:
        StateIncompleteError: If an operator has only metadata of later batches.
    """
    found: dict[str, list[tuple[int, str]]] = {}
    for path in paths:
        if match := _METADATA.fullmatch(path):
            found.setdefault(match["operator"], []).append((int(match["batch"] or 0), path))
    wanted = []
    for operator, versions in sorted(found.items()):
        usable = [version for version in versions if version[0] <= batch]
        if not usable:
            raise StateIncompleteError.of(operator, batch + 1, f"_metadata of batch {batch} or before")
        wanted.append(max(usable)[1])
    return wanted


def parse(path: str, text: str) -> OperatorMetadata:
    """Parse the metadata at ``path``.

    Raises:
        LogFormatError: If it is malformed.
        FlinkstyleError: ``CHECKPOINT_UNSUPPORTED`` if its version is newer than 2, or it names files by an
            unknown field.
    """
    match = _METADATA.fullmatch(path)
    if match is None:
        raise LogFormatError.of("Operator metadata", "a path like state/0/_metadata/metadata", path)
    fields = _fields(path, text)
    try:
        names = [str(store["storeName"]) for store in fields["stateStoreInfo"]]
        partitions = max(int(store["numPartitions"]) for store in fields["stateStoreInfo"])
        named = [str(name) for store in fields["stateStoreInfo"] for name in store.get(_SCHEMAS, ())]
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise LogFormatError.of(path, "the operator's list of stores", text) from error
    _require_known_paths(path, fields)
    folder = match["operator"]
    return OperatorMetadata(
        path=path,
        folder=folder,
        stores=tuple(names),
        partitions=partitions,
        schemas=tuple(sorted({_inside(name, folder) for name in named})),
    )


def is_relocatable(path: str) -> bool:
    """Tell whether the file at ``path`` holds absolute paths, so that a copy elsewhere must differ."""
    match = _METADATA.fullmatch(path)
    return match is not None and match["batch"] is not None


def relocate(path: str, content: bytes, root: str) -> bytes:
    """Return the content that a file must have in a checkpoint at ``root``.

    Args:
        path: Relative to the checkpoint root; any file but a relocatable one is returned as it is.
        content: As Spark wrote it, for whatever location.
        root: The new location, as a store's ``uri``; becomes the name that Spark uses (``s3a://``).

    Raises:
        LogFormatError: If a relocatable file is malformed.
        FlinkstyleError: ``CHECKPOINT_UNSUPPORTED`` if its version is newer than 2.
    """
    match = _METADATA.fullmatch(path)
    if match is None or match["batch"] is None:
        return content
    text = _decoded(path, content)
    parse(path, text)  # the code below relies on its shape
    fields = _fields(path, text)
    for store in fields["stateStoreInfo"]:
        if _SCHEMAS in store:
            store[_SCHEMAS] = [_moved(name, match["operator"], root) for name in store[_SCHEMAS]]
    return f"{text.partition(chr(10))[0]}\n{compact_json(fields)}".encode()


def renumbered(path: str, content: bytes, number: int) -> bytes:
    """Return the content that an operator's metadata has under another number.

    Args:
        path: Where it was.
        content: As Spark wrote it.
        number: The operator's new number.

    Raises:
        LogFormatError: If it is malformed.
    """
    text = _decoded(path, content)
    folder, fields = parse(path, text).folder, _fields(path, text)
    fields["operatorInfo"]["operatorId"] = number
    for store in fields["stateStoreInfo"]:
        if _SCHEMAS in store:
            store[_SCHEMAS] = [
                name.replace(f"/{folder}/_stateSchema/", f"/state/{number}/_stateSchema/")
                for name in store[_SCHEMAS]
            ]
    return f"{text.partition(chr(10))[0]}\n{compact_json(fields)}".encode()


def is_metadata(path: str) -> bool:
    """Tell whether the file at ``path`` is an operator's metadata."""
    return _METADATA.fullmatch(path) is not None


def read_metadata(path: str, read: Callable[[str], bytes]) -> OperatorMetadata:
    """Read and parse the metadata at ``path``."""
    return parse(path, _decoded(path, read(path)))


def _decoded(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise LogFormatError.of(path, "UTF-8 text", content[:40].hex()) from error


def _fields(path: str, text: str) -> dict[str, Any]:
    _, body = split_version(text, f"Operator metadata {path}", KNOWN_VERSIONS)
    return json_object(body, path)


def _require_known_paths(path: str, fields: dict[str, Any]) -> None:
    """Refuse a field that ``relocate`` would leave as it is, with the original's path in it.

    Previews of Spark 4.0 wrote one ``stateSchemaFilePath``; what they wrote no release reads.
    """
    for part in (fields, fields.get("operatorInfo"), *fields["stateStoreInfo"]):
        for name in part if isinstance(part, dict) else ():
            if "path" in name.lower() and name != _SCHEMAS:
                raise CHECKPOINT_UNSUPPORTED.error(
                    found=f"{path} with the field {name}, whose paths are not known to follow a copy",
                    remedy=f"Run the job with a released Spark, which writes {_SCHEMAS}, from a new "
                    "checkpoint.",
                )


def _inside(name: str, operator: str) -> str:
    """Return an absolute schema path relative to its checkpoint, whose place does not matter."""
    _, marker, rest = name.rpartition(f"/{operator}/_stateSchema/")
    if not marker:
        raise LogFormatError.of(
            f"Metadata of {operator}", f"schema files below {operator}/_stateSchema", name
        )
    return f"{marker[1:]}{rest}"


def _moved(name: str, operator: str, root: str) -> str:
    """Return the same schema file below another root."""
    return f"{hadoop_root(root, name)}/{_inside(name, operator)}"


def hadoop_root(root: str, name: str) -> str:
    """Return a checkpoint's place, a store's ``uri``, as Hadoop writes it where ``name`` stood before."""
    scheme, colon, place = root.rstrip("/").partition("://")
    old_scheme = name.partition("://")[0]
    if not colon or scheme == "file":  # file:/path
        return f"file:{place or root.rstrip('/')}"
    if scheme in _S3_SCHEMES:
        return f"{old_scheme if old_scheme in _S3_SCHEMES else 's3a'}://{place}"
    return f"{scheme}://{place}"
