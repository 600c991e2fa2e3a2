"""Takes and prunes of one job in a bucket, several at once: the slot and the intents on a real service."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.jobs.retention import prune_job
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.places import own_place
from airflow_flinkstyle.protocol.records import Claim, Current, Heartbeat, TakeoverOrder
from airflow_flinkstyle.savepoint.blobs.garbage_collection import hold_prune
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.files.verified import check_savepoint
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.retention import prune as pruning
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import prune
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3_settings import S3Settings
from airflow_flinkstyle.types import Generation, Incarnation
from testbed.keys import SIGNER
from testbed.s3 import VersionsGw
from tests.manifests import manifests_of

if TYPE_CHECKING:
    from airflow_flinkstyle.savepoint.retention.prune import PruneReport
    from testbed.s3 import VersityGw

pytestmark = pytest.mark.integration

GOLDEN = Path(__file__).parent.parent / "golden/4.2.0/rocksdb"


def test_takes_and_prunes_at_once_leave_whole_savepoints_and_nothing_else(
    versitygw: VersityGw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pruning, "hold_prune", partial(hold_prune, poll_s=0.05))
    versitygw.create_bucket("pruned")
    settings = S3Settings(
        endpoint=versitygw.endpoint, access_key=versitygw.access_key, secret_key=versitygw.secret_key
    )
    live = LocalStore(tmp_path / "live")
    for file in GOLDEN.rglob("*"):
        if file.is_file():
            live.upload(str(file.relative_to(GOLDEN)), file)

    def repository() -> SavepointRepository:
        return SavepointRepository(open_store("s3://pruned/root", settings), "orders")

    def take(number: int) -> None:
        label = SavepointLabel(
            savepoint_id=f"sp-{number}", taken_at_ms=number, spark_version="4.2.0", taken_from_generation=1
        )
        take_savepoint(repository(), [QuerySource(name="q", checkpoint=live, kafka={})], label)

    def prune_to(max_count: int) -> None:
        prune(repository(), RetentionPolicy(max_count=max_count), in_use=dict, holder="p", wait_s=60)

    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(take, number) for number in range(6)]
        work += [pool.submit(prune_to, 20) for _ in range(3)]  # frees only what nothing needs
        for done in work:
            done.result(120)
    prune_to(2)
    left = manifests_of(repository())
    assert [manifest.savepoint_id for manifest in left] == ["sp-5", "sp-4"]
    for manifest in left:
        verify_savepoint(manifest, repository(), level="full")
    keys = {info.key.split("/")[1] for info in open_store("s3://pruned/root", settings).list()}
    assert keys == {"blobs", "prune.json", "savepoints"}
    assert repository().blob_sizes().keys() == left[0].blobs.keys() | left[1].blobs.keys()


@pytest.mark.matrix
def test_prune_of_a_bucket_that_keeps_versions_frees_nothing_and_check_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with VersionsGw(tmp_path / "gateway") as gateway:
        gateway.create_bucket("kept")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", gateway.access_key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", gateway.secret_key)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", gateway.endpoint)
        repository = SavepointRepository(open_store("s3://kept/root"), "orders")

        def take(number: int) -> None:
            label = SavepointLabel(
                savepoint_id=f"sp-{number}",
                taken_at_ms=number,
                spark_version="4.2.0",
                taken_from_generation=1,
            )
            source = QuerySource(name="q", checkpoint=LocalStore(GOLDEN), kafka={})
            take_savepoint(repository, [source], label)

        def checked() -> dict[str, Any]:
            return json.loads(CliRunner().invoke(app, ["store", "check", "s3://kept/root", "--json"]).stdout)

        found = checked()
        assert (found["warnings"], found["findings"]) == ([], [])
        take(1)
        gateway.keep_versions("kept")
        found = checked()
        (warning,) = found["warnings"]
        assert "no lifecycle rule is seen that ever deletes them" in warning
        # versitygw 1.8.0 takes a delete marker for what was there before, and replaces it.
        assert {one["problem"] for one in found["findings"]} <= {
            "a replace of a deleted object: expected 'ObjectChangedError', found 'no error'."
        }
        blobs = repository.blob_sizes()
        repository.delete_manifest("sp-1")
        report = prune(repository, RetentionPolicy(max_count=1), in_use=dict, holder="p", wait_s=60)
        assert (report.freed_blobs, report.freed_bytes) == (len(blobs), 0)
        assert report.noncurrent_bytes == sum(blobs.values())
        assert "0 bytes freed so far" in report.as_markdown()
        assert repository.blob_sizes() == {}
        listed = gateway.client().list_object_versions(Bucket="kept", Prefix="root/orders/blobs/")
        assert sum(one["Size"] for one in listed["Versions"]) == report.noncurrent_bytes, "they are there"


def test_checkpoint_of_a_generation_that_another_followed_goes_from_a_bucket(versitygw: VersityGw):
    versitygw.create_bucket("freed")
    settings = S3Settings(
        endpoint=versitygw.endpoint, access_key=versitygw.access_key, secret_key=versitygw.secret_key
    )
    store = open_store("s3://freed/root", settings)
    board, repository = JobBoard(store, "orders"), SavepointRepository(store, "orders")
    places = {}
    for number in (Generation(1), Generation(2)):
        location = f"s3a://freed/checkpoints/orders/{number:06d}-x"
        claim = Claim(
            claim_key="test",
            follows=Generation(1) if number == 2 else None,
            checkpoint_location=location,
            prepare_savepoint_id=None,
            overrides=(),
            lease_s=30.0,
            launch={"spec": {}},
            claimed_at_ms=1,
        )
        board.create_claim(number, SIGNER.sign(claim, board.claim_place(number)))
        places[number] = open_store(location, settings)
        own_place(places[number], board, number)
        for file in GOLDEN.rglob("*"):
            if file.is_file():
                places[number].upload(f"q/{file.relative_to(GOLDEN)}", file)
    order = TakeoverOrder(savepoint_id=None, closed_at=None, expected={}, parent=BEGINNING)
    board.create_takeover_order(Generation(2), order)
    board.take_current(Current(generation=Generation(2), incarnation=Incarnation(1)), seen=None)
    beat = Heartbeat(
        incarnation=Incarnation(1),
        state="running",
        beat=1,
        written_at_ms=1,
        spark_version="4.2.0",
        application_id="app",
        queries={},
        has_committed=True,
    )
    board.beat(Generation(2), beat, seen=None)
    label = SavepointLabel(savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=2)
    checkpoint = open_store("s3a://freed/checkpoints/orders/000002-x/q", settings)
    take_savepoint(repository, [QuerySource(name="q", checkpoint=checkpoint, kafka={})], label)
    check_savepoint(repository, "sp-1", level="quick", by="t")
    kept = {info.key for info in places[Generation(2)].list()}

    def prune_all(*, dry_run: bool = False) -> PruneReport:
        return prune_job(
            board,
            repository,
            RetentionPolicy(),
            holder="t",
            wait_s=60,
            dry_run=dry_run,
            signer=SIGNER,
            open_checkpoint=partial(open_store, s3=settings),
        )

    (would,) = prune_all(dry_run=True).freed_checkpoints
    assert would.size_bytes == sum(info.size_bytes for info in places[Generation(1)].list()) > 0
    assert prune_all().freed_checkpoints == (would,)
    assert list(places[Generation(1)].list()) == []
    assert {info.key for info in places[Generation(2)].list()} == kept
    assert [one.generations for one in prune_all().checkpoints] == [(2,)]
