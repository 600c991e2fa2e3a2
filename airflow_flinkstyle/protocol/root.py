"""The identity of a savepoint root: an id that is made once, and where it was made.

Names do not tell two roots apart: both may have a job ``orders`` in its generation 3, and use one checkpoint
root, one folder of logs. A folder may be deleted and begun anew, and a bucket may be copied.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.errors import RootCopiedError
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.storage.errors import ObjectExistsError
from airflow_flinkstyle.storage.keys import Name

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import ObjectStore

ROOT_KEY: Final = "_root.json"
"""No job's name begins like it, and lists of jobs leave it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Root(Record):
    """``_root.json``: created by the first start below a root."""

    what: ClassVar[str] = "root"

    root_id: Name
    uri: str
    """Where the root was when this was written: another one means that it was copied, or moved."""
    created_at_ms: int

    def require_at(self, uri: str) -> None:
        """Check that the root is where it was created; raises ``RootCopiedError`` with both places."""
        if uri != self.uri:
            raise RootCopiedError.of(uri, created_at=self.uri)


def root_of(store: ObjectStore) -> Root:
    """Return the identity of a root, which is created if it has none."""
    found = store.get(ROOT_KEY)
    if found is None:
        with suppress(ObjectExistsError):  # another was first, or an answer was lost
            store.create(ROOT_KEY, _new(store).to_bytes())
    return Root.from_bytes(store.read(ROOT_KEY) if found is None else found.data)


def adopt_root(store: ObjectStore, *, is_copy: bool) -> Root:
    """Let a root that was created elsewhere be used where it is now.

    Args:
        store: The root.
        is_copy: The other one is used on: this one gets an id of its own, so what belongs to the other one's
            jobs does not belong to this one's. Else it was moved, and keeps its id.

    Raises:
        ObjectChangedError: If another caller has just done so.
    """
    found = store.get(ROOT_KEY)
    if found is None:
        return root_of(store)
    known = _new(store) if is_copy else replace(Root.from_bytes(found.data), uri=store.uri)
    store.replace(ROOT_KEY, known.to_bytes(), expected=found.version)
    return known


def _new(store: ObjectStore) -> Root:
    return Root(root_id=uuid.uuid4().hex, uri=store.uri, created_at_ms=now_ms())
