"""Names, manifests, archives and records as somebody would write them who wants to leave a folder.

A corpus: whatever is found to pass is added here, and stays.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.protocol.cuts import Cut
from airflow_flinkstyle.protocol.records import Claim, End, Heartbeat, Progress, Request, TakeoverOrder
from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.blobs.intents import Intent
from airflow_flinkstyle.savepoint.blobs.prune_slot import Condemned
from tests.formats.examples import an_example

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.record import Record
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

NAMES = [
    "", ".", "..", "../x", "../../../x", "a/../../x", "/etc/cron.d/x", "//x", "a/b", "a/", "~", "~/x", "./x",
    "..\\x", "C:\\x", "a\\..\\b", "a\0b", "a\nb", "a ", " a", "-rf", "--root", ".hidden", "_temporary",
    "%2e%2e%2fx", "..%2fx", "\uff0e\uff0e/x", "\u2025/x", "\ud800", "caf\u00e9", "$HOME", "$(id)", "`id`",
    "a;b", "a|b", "a:b", "s3://bucket/x", "file:///etc/x", "a?b", "a#b", "*", "x" * 129, "a\u202eb",
]  # fmt: skip
"""No name: each leaves a folder, hides in one, or is read as something else by a store, a shell or Hadoop."""


def _good(record: Record) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(record.to_bytes())
    return fields


_GO: dict[str, Any] = _good(
    an_example(
        TakeoverOrder, signature="", rewind="continue", skip_known_batches=False,
        claim_mode="no_claim",
    )
)  # fmt: skip

GOOD: list[tuple[type[Record], dict[str, Any], tuple[str, ...]]] = [
    (Request, _good(an_example(Request)), ("request_id", "savepoint_id", "cut_id")),
    (Claim, _good(an_example(Claim)), ("prepare_savepoint_id", "claim_id")),
    (Heartbeat, _good(an_example(Heartbeat)), ("queries", "request_id", "savepoint_id", "dropped")),
    (TakeoverOrder, _GO, ("savepoint_id", "closed_at", "expected", "unused_from", "while_held")),
    (End, _good(an_example(End)), ("request_id", "savepoint_id", "batches")),
    (Progress, _good(an_example(Progress)), ("request_id",)),
    (Cut, _good(an_example(Cut)), ("cut_id", "members")),
    (Intent, _good(an_example(Intent)), ("publishes",)),
    (Condemned, _good(an_example(Condemned)), ("savepoints",)),
]
"""Each kind of record with names in it, a good one as JSON, and which fields hold the names."""


def records(name: str) -> Iterator[tuple[type[Record], str, bytes]]:
    """Yield each record with the name in one of its fields, and that field."""
    for kind, good, fields in GOOD:
        for field in fields:
            yield kind, field, json.dumps({**good, field: put(good[field], name)}).encode()


def put(good: object, name: str) -> object:
    """Return a field with the name in the place of what it holds."""
    if isinstance(good, dict):
        return dict.fromkeys([name], next(iter(good.values())))
    return [name] if isinstance(good, list) else name


FORGED: tuple[dict[str, Any], ...] = (
    {},
    {"signature": "0" * 64},
    {"signature": ","},
    {"signature": "0" * 64 + "," + "0" * 64},
    {"rewind": "re-emit", "skip_known_batches": True},
)
"""Takeover orders of who can write the savepoint root and has no key: changes of a well-formed one."""


def forge_order(board: JobBoard, generation: int, **change: Any) -> None:
    """Tell a waiting driver to take over, as who can write the store does."""
    order = {**_GO, "savepoint_id": None, "closed_at": None, "expected": {}, "unused_from": {}, **change}
    key = f"{board.job}/runs/{generation:06d}/takeover-order.json"
    board.store.write(key, json.dumps(order).encode())


def manifest(good: str, change: dict[str, Any], query: dict[str, Any]) -> str:
    """Return a manifest's text with other fields, and others in its first query; its checksum is right."""
    document = {**json.loads(good), **change}
    document["queries"][0].update(query)
    return manifest_json.with_checksum(json.dumps(document))


def rename_in_export(folder: Path, query: str) -> None:
    """Give the first query of an exported savepoint another name; every checksum is right."""
    place = folder / "savepoint.json"
    text = manifest(place.read_text(), {}, {"name": query})
    place.write_text(text)
    kept = [line for line in (folder / "SHA256SUMS").read_text().splitlines() if "savepoint.json" not in line]
    kept.append(f"{hashlib.sha256(text.encode()).hexdigest()}  savepoint.json")
    (folder / "SHA256SUMS").write_text("".join(f"{line}\n" for line in kept))


def archive(folder: Path, path: Path) -> Path:
    """Pack an exported savepoint as anybody's ``tar`` does."""
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as packed:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                packed.add(file, arcname=str(file.relative_to(folder)))
    return path


def plant_manifest(repository: SavepointRepository, savepoint_id: str, **query: Any) -> None:
    """Change the first query of a savepoint in its repository, past every check of this package."""
    key = f"{repository.job}/savepoints/{savepoint_id}.json"
    good = repository.store.read(key).decode()
    repository.store.write(key, manifest(good, {}, query).encode())
