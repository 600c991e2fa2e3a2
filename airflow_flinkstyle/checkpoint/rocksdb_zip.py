"""``V.zip``, ``V_<uuid>.zip``: a version of a RocksDB store, but for the files that versions share. Pure.

Spark: ``RocksDBCheckpointMetadata``.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint.errors import LogFormatError, StateIncompleteError
from airflow_flinkstyle.checkpoint.logfile import json_object, split_version
from airflow_flinkstyle.checkpoint.state_files import StateFile, checksum_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

KNOWN_VERSIONS = (1,)
_BROKEN_ZIP = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError),
    *(NotImplementedError, RuntimeError, KeyError, ValueError, TypeError, AttributeError),
)
_LIST_LIMIT_BYTES = 64 << 20
"""Of a file list, unpacked: names of half a million files."""


def zip_and_shared_files(
    path: str, version: int, visible: Collection[str], read: Callable[[str], bytes]
) -> Iterator[StateFile]:
    """Yield a zip and behind it every file that it names.

    Raises:
        StateIncompleteError: If one of them is missing.
        LogFormatError: If the zip cannot be read.
        UnsupportedCheckpointError: If its file list is of a newer version.
    """
    store = path.rpartition("/")[0]
    archive = read(path)
    yield StateFile(path=path, content=archive)
    for shared in _named_in(archive, store):
        if shared not in visible:
            raise StateIncompleteError.of(store, version, shared)
        yield StateFile(path=shared, content=None)
    yield from checksum_of(path, visible)


def _named_in(archive: bytes, store: str) -> list[str]:
    """Return the files that the ``metadata`` entry names: SSTs, and logs if any."""
    what = f"RocksDB file list in {store}"
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as entries, entries.open("metadata") as entry:
            text = entry.read(_LIST_LIMIT_BYTES).decode()
    except _BROKEN_ZIP as error:
        raise LogFormatError.of(f"Zip in {store}", "a zip with a file list", str(error)) from error
    _, body = split_version(text, what, KNOWN_VERSIONS)
    fields = json_object(body, what)
    try:
        ssts = [f"{store}/SSTs/{entry['dfsSstFileName']}" for entry in fields.get("sstFiles") or ()]
        logs = [f"{store}/logs/{entry['dfsLogFileName']}" for entry in fields.get("logFiles") or ()]
    except (KeyError, TypeError) as error:
        raise LogFormatError.of(what, "the names of files", body) from error
    return ssts + logs
