"""A store that tells when something of a cutover's journal is about to be written, or was."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_flinkstyle.storage.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable


class JournalStore(LocalStore):
    """Tells each point of a cutover: ``attempt``, and of each phase its ``intent``, then ``unrecorded`` (the
    action is done, its result is not written), then its ``result``.
    """

    told: Callable[[str], None]

    def create(self, key: str, data: bytes) -> str:
        """Create; an intent or the first attempt, if it is the journal's."""
        version = super().create(key, data)
        if "/migrations/" in key:
            self.told("attempt" if "attempt" in key else f"{json.loads(data)['phase']} intent")
        return version

    def replace(self, key: str, data: bytes, *, expected: str) -> str:
        """Replace; a result, if the journal's phase has one."""
        phase = json.loads(data)["phase"] if "/migrations/" in key and "attempt" not in key else None
        has_result = phase is not None and json.loads(data)["result"] is not None
        if has_result:
            self.told(f"{phase} unrecorded")
        version = super().replace(key, data, expected=expected)
        if has_result:
            self.told(f"{phase} result")
        return version
