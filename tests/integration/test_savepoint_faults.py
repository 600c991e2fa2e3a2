"""A network that breaks between boto3 and a real S3 server: a savepoint is whole or absent."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pytest

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.exchange.export import export_savepoint
from airflow_flinkstyle.savepoint.exchange.importing import import_savepoint
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.errors import StoreDeniedError, StoreUnavailableError
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3_settings import S3Settings
from testbed.faulty_link import Break, Direction, FaultyLink, LinkFault
from testbed.memory_store import MemoryStore
from tests.manifests import manifests_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.storage.base import ObjectStore
    from testbed.s3 import VersityGw

pytestmark = pytest.mark.integration

GOLDEN = Path(__file__).parent.parent / "golden/4.2.0/rocksdb-changelog"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> LocalStore:
    """A stopped query's checkpoint, with one file that is streamed."""
    store = LocalStore(tmp_path_factory.mktemp("live"))
    for file in GOLDEN.rglob("*"):
        if file.is_file():
            store.upload(str(file.relative_to(GOLDEN)), file)
    large = next(info.key for info in store.list("state/0/0/SSTs/"))
    store.write(large, os.urandom(1_500_000))
    return store


@pytest.fixture(scope="module")
def link(versitygw: VersityGw) -> Iterator[FaultyLink]:
    with FaultyLink(versitygw.port) as link:
        yield link


def settings(server: VersityGw, endpoint: str, **changes: object) -> S3Settings:
    timeout_s = 10.0 if endpoint == server.endpoint else 0.4  # a busy machine is no broken network
    values = {
        "endpoint": endpoint,
        "access_key": server.access_key,
        "secret_key": server.secret_key,
        "read_timeout_s": timeout_s,
        "connect_timeout_s": timeout_s,
        "max_attempts": 1,
        **changes,
    }
    return S3Settings(**values)  # type: ignore[arg-type]


def a_repository(bucket: str, how: S3Settings) -> SavepointRepository:
    return SavepointRepository(open_store(f"s3://{bucket}/root", how), "orders")


def take(repository: SavepointRepository, live: LocalStore) -> Manifest:
    label = SavepointLabel(
        savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=None
    )
    return take_savepoint(repository, [QuerySource(name="q", checkpoint=live, kafka={})], label)


def contents(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: store.read(info.key) for info in store.list()}


def require_whole_or_absent(repository: SavepointRepository) -> None:
    for manifest in manifests_of(repository):
        verify_savepoint(manifest, repository, level="full")


def breaks(most_bytes: int, count: int) -> Iterator[tuple[LinkFault, Direction, int]]:
    for fault in get_args(LinkFault):
        for direction in get_args(Direction):
            places = count if fault == "cut" else count // 2  # a stall takes its time
            for number in range(places):
                yield fault, direction, int(most_bytes * ((number + 0.5) / places) ** 2)


def broken_by(link: FaultyLink, when: Break, work: Callable[[], object]) -> bool:
    """Run while the link breaks; returns whether the work failed for it, as it may."""
    link.break_at(when)
    try:
        work()
    except StoreUnavailableError as error:
        assert error.retryable  # noqa: PT017
        return True
    finally:
        link.mend()
    return False


def test_savepoint_is_whole_or_absent_wherever_the_network_breaks(
    live: LocalStore, versitygw: VersityGw, link: FaultyLink
):
    failed = 0
    before = contents(live)
    for number, (fault, direction, after_bytes) in enumerate(breaks(60_000, 4)):
        bucket = versitygw.create_bucket(f"broken-take-{number}")
        direct = a_repository(bucket, settings(versitygw, versitygw.endpoint))
        through = a_repository(bucket, settings(versitygw, link.endpoint))
        when = Break(fault=fault, direction=direction, after_bytes=after_bytes)
        failed += broken_by(link, when, partial(take, through, live))
        require_whole_or_absent(direct)
        verify_savepoint(take(direct, live), direct, level="full")
        assert contents(live) == before
    assert failed > 5


def test_restore_export_and_import_survive_a_broken_network(
    live: LocalStore, versitygw: VersityGw, link: FaultyLink, tmp_path: Path
):
    bucket = versitygw.create_bucket("broken-restore")
    direct = a_repository(bucket, settings(versitygw, versitygw.endpoint))
    through = a_repository(bucket, settings(versitygw, link.endpoint))
    manifest = take(direct, live)
    failed = 0
    for number, (fault, direction, after_bytes) in enumerate(breaks(60_000, 2)):
        when = Break(fault=fault, direction=direction, after_bytes=after_bytes)
        target, folder = MemoryStore(), LocalStore(tmp_path / f"export-{number}")
        failed += broken_by(
            link, when, lambda target=target: restore_savepoint(manifest, through, lambda _: target)
        )
        restore_savepoint(manifest, direct, lambda _, target=target: target)
        assert contents(target) == {e.path: live.read(e.path) for e in manifest.queries[0].files}
        failed += broken_by(link, when, partial(export_savepoint, through, "sp-1", folder))
        export_savepoint(direct, "sp-1", folder)
        assert import_savepoint(folder, SavepointRepository(MemoryStore(), "orders")) == manifest
    assert failed > 3


@pytest.mark.parametrize("after_bytes", [500, 9_000, 700_000, 1_400_000])
def test_what_hangs_on_its_way_to_the_store_is_sent_again(
    live: LocalStore, versitygw: VersityGw, link: FaultyLink, after_bytes: int
):
    patient = settings(versitygw, link.endpoint, read_timeout_s=10.0, max_attempts=4)
    repository = a_repository(versitygw.create_bucket(f"hangs-{after_bytes}"), patient)
    link.break_at(Break(fault="stall", direction="sent", after_bytes=after_bytes))
    mender = threading.Timer(0.5, link.mend)
    mender.start()
    try:
        manifest = take(repository, live)
    finally:
        mender.join()
    verify_savepoint(manifest, repository, level="full")


@pytest.mark.parametrize("wrong", ["bucket", "secret"])
def test_missing_bucket_and_wrong_keys_are_named_and_leave_the_checkpoint_alone(
    live: LocalStore, versitygw: VersityGw, wrong: str
):
    before = contents(live)
    bucket = "no-such-bucket" if wrong == "bucket" else versitygw.create_bucket("denied")
    changes = {"secret_key": "not the secret"} if wrong == "secret" else {}
    repository = a_repository(bucket, settings(versitygw, versitygw.endpoint, **changes))
    started_s = time.monotonic()
    with pytest.raises(StoreDeniedError, match=bucket) as caught:
        take(repository, live)
    assert not caught.value.retryable
    assert "not the secret" not in str(caught.value)
    assert time.monotonic() - started_s < 10
    assert contents(live) == before
    with pytest.raises(FlinkstyleError):
        export_savepoint(repository, "sp-1", MemoryStore())


def test_answer_that_ends_anywhere_is_never_taken_for_a_shorter_one(versitygw: VersityGw, link: FaultyLink):
    """An empty listing would let a prune free everything; an empty file would be restored."""
    bucket = versitygw.create_bucket("short-answers")
    store = open_store(f"s3://{bucket}/root", settings(versitygw, link.endpoint))
    store.write("a/b", b"0123456789" * 20)
    refused = 0
    for after_bytes in range(10, 700, 15):
        for call, whole in (
            (lambda: [info.key for info in store.list()], ["a/b"]),
            (lambda: store.read("a/b"), b"0123456789" * 20),
            (lambda: store.get("a/b").data, b"0123456789" * 20),  # type: ignore[union-attr]
            (lambda: store.head("a/b").key, "a/b"),  # type: ignore[union-attr]  # no body proves its size
        ):
            link.break_at(Break(fault="cut", direction="answered", after_bytes=after_bytes))
            try:
                assert call() == whole
            except StoreUnavailableError:
                refused += 1
            finally:
                link.mend()
    assert refused > 50
