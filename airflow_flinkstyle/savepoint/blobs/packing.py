"""Write packs: small files that a savepoint adds, many in one object.

A request for each small file costs a hundred times what its bytes do: a millisecond of CPU in the client, and
money in the bucket. A pack is one blob, and is kept or deleted as a whole. Later savepoints that need little
of it pack that part again, so that it is freed with the last savepoint that needs more.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.savepoint.manifest import FileEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

PACKED_BELOW_BYTES: Final = 1 << 20
"""A larger file is one request that is worth its cost."""
PACK_BYTES: Final = 8 << 20
"""Takes about as long to send as a request takes to be answered; each pack under way needs so much memory."""
MOST_FILES: Final = 1 << 16
"""How many files a pack holds."""
WORN: Final = 0.5
"""If a savepoint would need less than this part of an earlier pack, it packs those files again. So its packs
hold at most twice what it needs, and no pack is kept for a few files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFile:
    """A file that was read to be packed."""

    path: str
    content: bytes
    sha256: str
    """Of the content, in hex."""

    @classmethod
    def of(cls, path: str, content: bytes) -> SmallFile:
        """Return it with its digest."""
        return cls(path=path, content=content, sha256=hashlib.sha256(content).hexdigest())


def put_pack(
    repository: SavepointRepository, files: Sequence[SmallFile], *, is_new: Callable[[str, int], bool]
) -> list[FileEntry]:
    """Store files as one pack, each content once; a single content is a blob of its own.

    Args:
        repository: Where it goes.
        files: In the order in which they are to lie.
        is_new: Called with key and size in bytes; False means that the blob is there already.
    """
    contents = {file.sha256: file.content for file in files}
    if len(contents) == 1:
        return _put_alone(repository, files, is_new)
    offsets: dict[str, int] = {}
    end = 0
    for sha256, content in contents.items():
        offsets[sha256] = end
        end += len(content)
    # Its content follows from these digests alone; to hash it again would take as long as they did.
    name = hashlib.sha256(bytes.fromhex("".join(contents))).hexdigest()
    blob = repository.key_for(f"packs/{name}")
    if is_new(blob, end):
        store, key = repository.place(blob)
        store.write(key, b"".join(contents.values()))
    return [
        FileEntry(
            path=file.path,
            size_bytes=len(file.content),
            blob=blob,
            digest=f"sha256:{file.sha256}",
            offset=offsets[file.sha256],
            pack_bytes=end,
        )
        for file in files
    ]


def _put_alone(
    repository: SavepointRepository, files: Sequence[SmallFile], is_new: Callable[[str, int], bool]
) -> list[FileEntry]:
    content, sha256 = files[0].content, files[0].sha256
    blob = repository.key_for(sha256)
    if is_new(blob, len(content)):
        repository.put_blob(content)
    return [
        FileEntry(path=file.path, size_bytes=len(content), blob=blob, digest=f"sha256:{sha256}")
        for file in files
    ]


def needed_bytes(entries: Iterable[FileEntry]) -> Mapping[str, int]:
    """Return how much of each pack these files need, each content once, by the pack's key."""
    needed: Counter[str] = Counter()
    for entry in {entry.place: entry for entry in entries if entry.pack_bytes is not None}.values():
        needed[entry.blob] += entry.size_bytes
    return needed


def worn_packs(entries: Sequence[FileEntry]) -> set[str]:
    """Return the packs of which a savepoint with these files would need little."""
    needed = needed_bytes(entries)
    return {
        entry.blob
        for entry in entries
        if entry.pack_bytes is not None and needed[entry.blob] < WORN * entry.pack_bytes
    }
