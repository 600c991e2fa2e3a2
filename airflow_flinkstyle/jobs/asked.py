"""A request's key: who asks, and what. The same caller who asks for something else makes another request."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def digest_of(*who: str, asked: Mapping[str, Any] | None = None) -> str:
    """Return a short digest of who asks for what; equal ones re-attach to each other.

    Args:
        who: The caller without the try number, in parts.
        asked: What a retry must ask for too; how long to wait, and how to go about it, is none of it.
    """
    parts = list(who)
    if asked:
        parts.append(json.dumps({**asked}, sort_keys=True, default=str))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
