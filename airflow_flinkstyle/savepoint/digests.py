"""Whether content is what a manifest's digest says; for every kind of digest. Pure."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_KINDS = {"sha256": hashlib.sha256, "etag": hashlib.md5}
"""``etag`` is written only where the service's ETag is the content's MD5."""


def matches(pieces: Iterable[bytes], *, size_bytes: int, digest: str | None) -> bool:
    """Tell whether content has the size and the digest; only the size counts where no digest is known."""
    kind, _, expected = (digest or "").partition(":")
    if digest is not None and kind not in _KINDS:
        return False
    hashing = _KINDS[kind](usedforsecurity=False) if digest is not None else None
    found_bytes = 0
    for piece in pieces:
        found_bytes += len(piece)
        if hashing is not None:
            hashing.update(piece)
    return found_bytes == size_bytes and (hashing is None or hashing.hexdigest() == expected)
