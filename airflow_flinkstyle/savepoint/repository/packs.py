"""Read packs: small files of a savepoint that lie one behind the other in one object.

A request for each small file costs a hundred times what its bytes do. The manifest says where in a pack a
file is, and each file has its own digest, so a range is trusted as little as an object of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.storage.errors import ObjectMissingError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from airflow_flinkstyle.savepoint.manifest import FileEntry, StoredAt
    from airflow_flinkstyle.savepoint.repository.stored import JobFolder

_GAP_BYTES: Final = 256 << 10
"""Unneeded bytes between two files, read along because another request would take longer."""
_MOST_BYTES: Final = 16 << 20
"""How much one request reads."""


def blob_key(job: str, blob: str) -> str:
    """Return where a blob is."""
    return f"{job}/blobs/{blob}"


def read_packed(repository: JobFolder, entries: Sequence[FileEntry]) -> Mapping[StoredAt, bytes | None]:
    """Return the contents of files in packs by their places, by few requests.

    If a pack was cut, contents beyond its end are short, or empty; None means that the pack is gone. No
    content is compared with its digest.

    Raises:
        StoreUnavailableError: If the store answered a range short although the pack is whole.
    """
    found: dict[StoredAt, bytes | None] = {}
    for stretch in _stretches(entries):
        start, end = stretch[0].offset or 0, max(map(_end, stretch))
        data = _read_range(repository, stretch[0], start, end)
        for entry in stretch:
            begin = (entry.offset or 0) - start
            found[entry.place] = None if data is None else bytes(data[begin : begin + entry.size_bytes])
    return found


def _end(entry: FileEntry) -> int:
    return (entry.offset or 0) + entry.size_bytes


def _stretches(entries: Iterable[FileEntry]) -> Iterator[list[FileEntry]]:
    """Yield files of one pack that are worth one request, in the order of their places."""
    stretch: list[FileEntry] = []
    start = end = 0
    for entry in sorted(entries, key=lambda entry: (entry.blob, entry.offset or 0)):
        is_near = (entry.offset or 0) <= end + _GAP_BYTES and _end(entry) <= start + _MOST_BYTES
        if stretch and not (is_near and entry.blob == stretch[0].blob):
            yield stretch
            stretch = []
        if not stretch:
            start = end = entry.offset or 0
        end = max(end, _end(entry))
        stretch.append(entry)
    if stretch:
        yield stretch


def _read_range(repository: JobFolder, of: FileEntry, start: int, end: int) -> memoryview | None:
    """Return a range of a pack, as far as the pack has it; None if there is none."""
    store, key = repository.store, blob_key(repository.job, of.blob)
    if start == end:  # empty files only, and a range of nothing cannot be asked for
        return memoryview(b"") if store.head(key) is not None else None
    try:
        data = store.read(key, start=start, length=end - start)
    except ObjectMissingError:
        return None
    if len(data) == end - start:
        return memoryview(data)
    info = store.head(key)
    if info is None:
        return None
    if len(data) == info.size_bytes:  # a store without ranges sends all of it
        return memoryview(data)[start:end]
    if info.size_bytes >= end:
        what = f"it sent {len(data)} of {end - start} bytes"
        raise StoreUnavailableError.during(f"read a range of {key}", store.uri, what)
    return memoryview(data)[: max(0, info.size_bytes - start)]
