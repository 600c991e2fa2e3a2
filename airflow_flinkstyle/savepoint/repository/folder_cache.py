"""Folders of many small objects, read by one listing and one cache object of what was read before.

``<job>/cache/<folder>.json`` has two lines: format and SHA-256 of the second line, which holds each object's
version and the extract of its content. An altered cache is ignored, like a missing one. An unchanged version
in the listing means unchanged content, so the cache can be lost, stale or overwritten by any process, and no
answer changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_flinkstyle.savepoint.repository.stored import JobFolder
    from airflow_flinkstyle.storage.base import ObjectInfo

_Entries: TypeAlias = "dict[str, tuple[str, Any]]"
"""By name: version and extract."""
_FORMAT = 1
_THREADS = 16
_WORTH_WRITING = 16
"""To read so many objects one by one takes longer than to update the cache."""
_WORTH_WRITING_BYTES = 64 << 10
"""So does a few large ones: a manifest of 100,000 files has about 6 MB, its extract 300 bytes."""


def read_folder(
    repository: JobFolder,
    folder: str,
    extract: Callable[[str, bytes], object],
    *,
    unreadable: Callable[[str, FlinkstyleError], None] | None = None,
) -> Mapping[str, Any]:
    """Return what ``extract`` makes of each object, by name without ``.json``.

    Args:
        repository: The job's savepoints.
        folder: Below the job, without slashes.
        extract: Turns an object's name and content into a JSON value; a change of it must change the
            folder's format too.
        unreadable: Called for each object that ``extract`` refuses; it is left out, and read again next
            time: another version of this package may know it. If None, the first one raises.
    """
    prefix = f"{repository.job}/{folder}/"
    listed = {
        info.key.removeprefix(prefix).removesuffix(".json"): info
        for info in repository.store.list(prefix)
        if info.key.endswith(".json")
    }
    cached = _read_cache(repository, folder) if _is_worth_it(listed.values()) else {}
    found: _Entries = {
        name: cached[name]
        for name, info in listed.items()
        if name in cached and cached[name][0] == info.version
    }
    new = sorted(listed.keys() - found.keys())
    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix=folder) as pool:
        objects = pool.map(repository.store.get, (f"{prefix}{name}.json" for name in new))
        for name, read in zip(new, objects, strict=True):
            if read is None:  # deleted since it was listed
                continue
            try:
                found[name] = (read.version, extract(name, read.data))
            except FlinkstyleError as error:
                if unreadable is None:
                    raise
                unreadable(name, error)
    if _is_worth_it(listed[name] for name in new if name in found):
        _write_cache(repository, folder, found)
    return {name: value for name, (_, value) in found.items()}


def _is_worth_it(objects: Iterable[ObjectInfo]) -> bool:
    """Return whether reading these objects costs more than the cache does."""
    sizes = [info.size_bytes for info in objects]
    return len(sizes) >= _WORTH_WRITING or sum(sizes) >= _WORTH_WRITING_BYTES


def _read_cache(repository: JobFolder, folder: str) -> _Entries:
    """Return the cache, or nothing if there is none of this format."""
    held = repository.store.get(_key(repository, folder))
    header, _, text = held.data.partition(b"\n") if held is not None else (b"", b"", b"")
    with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        if json.loads(header) == _header(text):
            return {str(name): (str(version), value) for name, (version, value) in json.loads(text).items()}
    return {}


def _write_cache(repository: JobFolder, folder: str, entries: _Entries) -> None:
    with contextlib.suppress(StoreError):  # a process that may only read lists more slowly
        repository.store.write(_key(repository, folder), _rendered(entries))


def _rendered(entries: Mapping[str, object]) -> bytes:
    text = json.dumps(entries, separators=(",", ":")).encode()
    return json.dumps(_header(text)).encode() + b"\n" + text


def _header(text: bytes) -> dict[str, object]:
    return {"format": _FORMAT, "sha256": hashlib.sha256(text).hexdigest()}


def _key(repository: JobFolder, folder: str) -> str:
    return f"{repository.job}/cache/{folder}.json"
