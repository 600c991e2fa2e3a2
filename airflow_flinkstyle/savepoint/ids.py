"""Names that become keys in the store. Pure."""

from __future__ import annotations

import hashlib


def new_savepoint_id(job: str, request_id: str) -> str:
    """Return the id of the savepoint that a request makes; a repeated request gives the same id."""
    return "sp-" + hashlib.sha256(f"{job}\0{request_id}".encode()).hexdigest()[:20]
