"""What a stranger's bytes can reach: each target takes any bytes and raises nothing.

Errors of the package are the answer expected to bad bytes and end a target quietly; every other exception,
and every broken promise, gets out. Used by the coverage-guided fuzzer (``make fuzz``) and by the tests.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from airflow_flinkstyle.checkpoint import commit_log, metadata, offset_log, operator_metadata
from airflow_flinkstyle.checkpoint.state_store import zip_and_shared_files
from airflow_flinkstyle.errors import FlinkstyleError, MessageFormatError
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.mirror.topics import decode_checkpoint, decode_offset_sync, decode_position
from airflow_flinkstyle.protocol.cuts import Cut
from airflow_flinkstyle.protocol.records import Claim, End, Heartbeat, Progress, Request, TakeoverOrder
from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.blobs.intents import Intent
from airflow_flinkstyle.savepoint.blobs.prune_slot import Condemned
from airflow_flinkstyle.savepoint.capture.query import capture_query
from airflow_flinkstyle.savepoint.capture.take import SavepointLabel, compose
from airflow_flinkstyle.savepoint.exchange.export import export_archive
from airflow_flinkstyle.savepoint.exchange.importing import import_archive
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.base import ObjectInfo
from airflow_flinkstyle.storage.keys import is_name
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from testbed.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_flinkstyle.kafka.reading import KafkaMessage

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
_KAFKA = {"0": KafkaLog(cluster_id="c", topic_ids={"golden": "t"}, log_range={})}
_LABEL = SavepointLabel(savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=None)
_OPERATOR = "state/0/_metadata/v2/0"


class BrokenPromiseError(AssertionError):
    """The package accepted something and then did not do with it what it says."""


def run(name: str, data: bytes) -> None:
    """Give bytes to a target; returns unless they found something."""
    try:
        TARGETS[name](data)
    except FlinkstyleError as error:
        _promise(all((error.problem, error.state_after, error.remedy)), "three sentences")


def _promise(kept: bool, what: str) -> None:
    if not kept:
        raise BrokenPromiseError(what)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def parse_offset_log(data: bytes) -> None:
    """An offset log that parses renders to the same text, and takes its own offsets back."""
    log = offset_log.parse(_text(data))
    _promise(log.render() == _text(data), "render")
    for source in log.kafka_sources:
        offsets = log.kafka_offsets(source)
        moved = offset_log.parse(log.with_kafka_offsets(source, offsets).render())
        _promise(moved.kafka_offsets(source) == offsets, "offsets")


def parse_commit_log(data: bytes) -> None:
    """A commit log that parses renders to the same text."""
    log = commit_log.parse(_text(data))
    _promise(log.render() == _text(data), "render")


def parse_metadata(data: bytes) -> None:
    """Metadata that parses renders to the same text."""
    _promise(metadata.parse(_text(data)).render() == _text(data), "render")


def relocate_operator(data: bytes) -> None:
    """Operator metadata that can be moved can be moved again, to the same place with no change."""
    once = operator_metadata.relocate(_OPERATOR, data, "s3://bucket/new")
    _promise(operator_metadata.relocate(_OPERATOR, once, "s3://bucket/new") == once, "relocate")


def read_zip(data: bytes) -> None:
    """A RocksDB zip names only files of its own store."""
    for file in zip_and_shared_files("state/0/0/3.zip", 3, _Everything(), lambda _: data):
        _promise(file.path.startswith("state/0/0/"), "names of a store")


class _Everything(frozenset[str]):
    """A listing that holds whatever is looked for."""

    def __contains__(self, name: object) -> bool:
        return True


def parse_manifest(data: bytes) -> None:
    """A manifest that parses renders to an equal one, and every path stays inside where it is restored."""
    text = _text(data)
    with contextlib.suppress(FlinkstyleError):
        text = manifest_json.with_checksum(text)  # so that more than the checksum is tried
    manifest = manifest_json.from_json(text)
    _promise(manifest_json.from_json(manifest_json.to_json(manifest)) == manifest, "render")
    with tempfile.TemporaryDirectory() as folder:
        repository = SavepointRepository(_Empty("root"), manifest.job)
        try:
            for query in manifest.queries:  # each where a driver and the command line restore it
                place = f"{folder}/target/{query.name}"
                _promise(is_name(query.name), "a query with a name")
                restore_query(manifest, query, repository, open_store(place))
        finally:
            _promise(set(os.listdir(folder)) <= {"target"}, "no write outside the target")  # noqa: PTH208


class _Empty(MemoryStore):
    """Holds an empty file under every name that is read whole."""

    def head(self, key: str) -> ObjectInfo | None:
        return ObjectInfo(key=key, size_bytes=0, version="1") if "/blobs/" in key else super().head(key)

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return b"" if "/blobs/" in key else super().read(key, start=start, length=length)


_NAMES = frozenset(
    (
        "request_id",
        "savepoint_id",
        "prepare_savepoint_id",
        "claim_id",
        "cut_id",
        "publishes",
        "savepoints",
        "queries",
        "dropped",
        "closed_at",
        "expected",
        "unused_from",
        "batches",
        "members",
    )
)
"""Fields of records that become parts of keys."""


def read_record(data: bytes) -> None:
    """A record that parses renders to an equal one, and what it names can stand in a key."""
    for kind in (Request, Heartbeat, Progress, End, Intent, Claim, TakeoverOrder, Cut, Condemned):
        try:
            record = kind.from_bytes(data)
        except FlinkstyleError:
            continue
        _promise(kind.from_bytes(record.to_bytes()) == record, "render")
        named = [getattr(record, field) for field in kind.__slots__ if field in _NAMES]
        names = [name for value in named for name in ([value] if isinstance(value, str) else value or ())]
        _promise(all(map(is_name, names)), "names")


def import_from_archive(data: bytes) -> None:
    """An archive that is imported is a whole savepoint, and nothing is written beside the repository."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "savepoint.tar"
        path.write_bytes(data)
        repository = SavepointRepository(LocalStore(Path(folder) / "root"), "orders")
        try:
            manifest = import_archive(path, repository)
        finally:
            _promise(set(os.listdir(folder)) <= {"savepoint.tar", "root"}, "no other file")  # noqa: PTH208
        verify_savepoint(manifest, repository, level="full")


def save_and_restore(data: bytes) -> None:
    """A checkpoint in which one file was replaced is refused, or saved and restored exactly as it is."""
    if len(data) < 2:
        return
    checkpoint = _checkpoint(data[0])
    paths = [info.key for info in checkpoint.list()]
    checkpoint.write(paths[data[1] % len(paths)], data[2:])
    repository = SavepointRepository(MemoryStore(), "orders")
    snapshot = capture_query(
        checkpoint, repository, name="q", kafka=_KAFKA if "kafka" in checkpoint.uri else {}, attempts=1
    )
    manifest = compose("orders", [snapshot], _LABEL)
    repository.publish(manifest)
    verify_savepoint(manifest, repository, level="full")
    target = MemoryStore("target")
    restore_query(manifest, snapshot, repository, target)
    for entry in snapshot.files:
        wanted = operator_metadata.relocate(entry.path, checkpoint.read(entry.path), target.uri)
        _promise(target.read(entry.path) == wanted, "an equal file")


_CASES = ("rocksdb-changelog", "format-v2", "transform-with-state", "hdfs", "kafka")
_kept: dict[str, dict[str, bytes]] = {}


def _checkpoint(number: int) -> MemoryStore:
    """Return a fresh copy of one of the golden checkpoints."""
    case = _CASES[number % len(_CASES)]
    if case not in _kept:
        golden = LocalStore(GOLDEN / "4.2.0" / case)
        _kept[case] = {
            info.key: golden.read(info.key) for info in golden.list() if "/." not in f"/{info.key}"
        }
    store = MemoryStore(case)
    for key, content in _kept[case].items():
        store.write(key, content)
    return store


def decode_mirror_notes(data: bytes) -> None:
    """A record of MirrorMaker's topics is understood whole or refused; the first byte is its key's length."""
    from confluent_kafka import Message

    end = 1 + (data[0] if data else 0)
    made = Message(topic="t", partition=0, offset=0, key=data[1:end], value=data[end:], timestamp=(1, 0))
    record = cast("KafkaMessage", made)
    for decode in (
        decode_offset_sync,
        decode_checkpoint,
        lambda record: decode_position(record, MirrorSettings(source_alias="west", target_alias="east")),
    ):
        with contextlib.suppress(MessageFormatError):
            decode(record)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "offset-log": parse_offset_log,
    "commit-log": parse_commit_log,
    "metadata": parse_metadata,
    "operator": relocate_operator,
    "zip": read_zip,
    "manifest": parse_manifest,
    "record": read_record,
    "archive": import_from_archive,
    "checkpoint": save_and_restore,
    "mirror": decode_mirror_notes,
}


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield good bytes for each target, to begin from."""
    for case in sorted(GOLDEN.glob("4.*/*")):
        for target, pattern in (
            ("offset-log", "offsets/4"), ("commit-log", "commits/4"), ("metadata", "metadata"),
            ("operator", "state/0/_metadata/v2/*"), ("zip", "state/0/0/*.zip"),
        ):  # fmt: skip
            for file in sorted(case.glob(pattern))[:1]:
                yield target, file.read_bytes()
    for number, name in enumerate(_CASES):
        paths = [info.key for info in _checkpoint(number).list()]
        for position, path in enumerate(paths):
            if path.startswith(("offsets/4", "commits/4", "metadata", "state/0/_metadata", "state/0/0/5")):
                yield "checkpoint", bytes([number, position]) + (GOLDEN / "4.2.0" / name / path).read_bytes()
    yield from _made_seeds()


def _made_seeds() -> Iterator[tuple[str, bytes]]:
    """Yield what the golden folders do not hold: a manifest, an archive, records."""
    repository = SavepointRepository(MemoryStore(), "orders")
    manifest = compose("orders", [capture_query(_checkpoint(4), repository, name="q", kafka=_KAFKA)], _LABEL)
    repository.publish(manifest)
    empty = [
        replace(entry, size_bytes=0, digest=None, offset=None, pack_bytes=None)
        for entry in manifest.queries[0].files
    ]
    hollow = replace(manifest, queries=(replace(manifest.queries[0], files=tuple(empty)),))
    yield "manifest", manifest_json.to_json(hollow).encode()
    nothing = f"sha256:{hashlib.sha256(b'').hexdigest()}"
    packed = [replace(entry, digest=nothing, blob="packs/x", offset=0, pack_bytes=0) for entry in empty]
    hollow = replace(manifest, queries=(replace(manifest.queries[0], files=tuple(packed)),))
    yield "manifest", manifest_json.to_json(hollow).encode()
    with tempfile.TemporaryDirectory() as folder:
        export_archive(repository, "sp-1", Path(folder) / "a.tar")
        yield "archive", (Path(folder) / "a.tar").read_bytes()
    progress = Progress(request_id="r", files_done=1, files_total=2, bytes_done=3, bytes_total=4, at_ms=5)
    intent = Intent(kind="take", holder="a task", publishes=None, lease_s=30.0, begun_at_ms=1)
    for record in (progress, intent):
        yield "record", record.to_bytes()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("metadata", 'v1\n{"sstFiles":[{"dfsSstFileName":"1.sst"}]}')
    yield "zip", content.getvalue()
    for records in json.loads((GOLDEN / "mirrormaker-4.3.0.json").read_bytes()).values():
        key, value = bytes.fromhex(records[0]["key"]), bytes.fromhex(records[0]["value"])
        yield "mirror", bytes([len(key)]) + key + value


def write_corpus(folder: Path) -> None:
    """Write the seeds as files whose first byte chooses the target."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(TARGETS)
    for target, data in seeds():
        content = bytes([names.index(target)]) + data
        (folder / hashlib.sha256(content).hexdigest()).write_bytes(content)
