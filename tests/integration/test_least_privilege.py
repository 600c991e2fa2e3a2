"""A job under the policies of examples/s3-rights, each role with a key of its own, enforced by a store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.errors import UPGRADE_ROLLED_BACK, DriverFailedError
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.retention import prune_job
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.errors import SavepointDamagedError, TakeCancelledError
from airflow_flinkstyle.savepoint.files.verified import check_savepoint, damaged_records, verified_records
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.storage.errors import StoreDeniedError
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3_settings import S3Settings
from testbed.keys import SIGNER
from testbed.refusals import refuses
from testbed.s3 import PolicyGw
from tests import hostile
from tests.unit.jobs.conftest import Mood, World
from tests.unit.jobs.cutovers import a_cutover
from tests.unit.jobs.drivers import Driver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.storage.base import ObjectStore

pytestmark = pytest.mark.integration

RIGHTS = Path(__file__).parents[2] / "examples/s3-rights"
GOLDEN = LocalStore(Path(__file__).parents[1] / "golden/4.2.0/rocksdb")
BUCKET, ROOT, JOB = "my-bucket", "s3://my-bucket/savepoints", "orders-job"


def policies() -> dict[str, dict[str, Any]]:
    """Return the policies of the example, by role."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(RIGHTS.glob("*.json"))}


class Roles:
    """The savepoint root, as each role reaches it."""

    def __init__(self, gateway: PolicyGw) -> None:
        self._gateway = gateway

    def store(self, role: str) -> ObjectStore:
        keys = {"access_key": role, "secret_key": PolicyGw.secret_of(role)}
        settings = S3Settings(endpoint=self._gateway.endpoint, region=self._gateway.region, **keys)
        return open_store(ROOT, settings)

    def repository(self, role: str) -> SavepointRepository:
        return SavepointRepository(self.store(role), JOB)


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    with PolicyGw(tmp_path_factory.mktemp("policies")) as gateway:
        gateway.create_bucket(BUCKET)
        gateway.allow(BUCKET, policies())
        yield Roles(gateway)


class DriversSide:
    """The world as a driver sees it: with the driver's key."""

    def __init__(self, world: World, store: ObjectStore) -> None:
        self._world, self.store = world, store
        self.repository = SavepointRepository(store, world.job)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._world, name)


class TwoKeys(World):
    """Callers have the worker's key, drivers the driver's."""

    def __init__(self, folder: Path, roles: Roles) -> None:
        super().__init__(folder, JOB, roles.store("worker"))  # type: ignore[arg-type]
        self._side: Any = DriversSide(self, roles.store("driver"))

    def spec(self, script: str = "v1.py", *, new: bool = False) -> Any:  # noqa: ANN401
        from dataclasses import replace

        return replace(super().spec(script, new=new), lease_s=3.0)  # a request to S3 takes its time

    def submit_on(self, host: str, submission: Any) -> dict[str, str]:  # noqa: ANN401
        pid = len(self.drivers) + 1
        self.drivers[pid] = Driver(self._side, pid, host, submission)
        self.drivers[pid].start()
        return {"pid": str(pid)}


@pytest.fixture
def world(tmp_path: Path, roles: Roles) -> Iterator[TwoKeys]:
    world = TwoKeys(tmp_path, roles)
    yield world
    world.kill_all()


def test_job_lives_under_the_policies_of_the_page(world: TwoKeys, roles: Roles):
    client = world.start()
    _, taken = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=60)
    world.logs.produce(5)
    world.kill(1)
    client.drivers.ensure_running(client.view.settled_status())
    client.drivers.wait_running(1, timeout_s=60)
    upgrade = Upgrade(
        client=client,
        journal=CutoverJournal(world.store, JOB, "u1", UPGRADE_PHASES, signer=SIGNER),
        spec=world.spec("broken.py"),
        target=world.target(),
        settings=CutoverSettings(first_commit_timeout_s=30.0),
    )
    world.moods["broken.py"] = Mood(fails_at_import=True)
    with refuses(UPGRADE_ROLLED_BACK):
        upgrade.run()
    assert a_cutover(world).run().plan.moves[0].shift == -100
    stopped = client.requests.stop("end", savepoint=True, timeout_s=60)
    assert isinstance(stopped, Stopped)
    again = client.starts.start(
        world.spec(new=True),
        world.target(),
        claim_key="again",
        origin=FromSavepoint(savepoint_id=str(stopped.savepoint_id)),
    )
    client.drivers.wait_running(again.generation, timeout_s=60)
    world.judge()

    seen = world.client()
    seen.view.board, seen.view.repository = JobBoard(roles.store("viewer"), JOB), roles.repository("viewer")
    assert isinstance(seen.view.settled_status(), Running)
    assert taken.savepoint_id in seen.view.repository.ids()

    pruner = roles.repository("prune")
    policy = RetentionPolicy(max_count=1)
    report = prune_job(JobBoard(roles.store("prune"), JOB), pruner, policy, holder="a prune", wait_s=60)
    assert taken.savepoint_id in report.plan.disposed
    kept = pruner.read(pruner.ids()[-1])
    assert verify_savepoint(kept, pruner, level="full").files
    client.requests.stop("over", savepoint=False, timeout_s=60)


def label(savepoint_id: str) -> SavepointLabel:
    return SavepointLabel(
        savepoint_id=savepoint_id, taken_at_ms=1, spark_version="4.2.0", taken_from_generation=1
    )


def a_source() -> QuerySource:
    return QuerySource(name="q", checkpoint=GOLDEN, kafka={})


@pytest.fixture(scope="module")
def manifest(roles: Roles) -> Any:  # noqa: ANN401
    return take_savepoint(roles.repository("driver"), [a_source()], label("sp-1"))


def test_drivers_key_takes_savepoints_and_deletes_no_blob(roles: Roles, manifest: Any):  # noqa: ANN401
    assert verify_savepoint(manifest, roles.repository("viewer"), level="full").files
    with pytest.raises(StoreDeniedError):
        roles.repository("driver").delete_blob(next(iter(manifest.blobs)))
    with pytest.raises(StoreDeniedError):
        roles.repository("driver").delete_manifest("sp-1")


def test_workers_key_records_that_a_savepoint_is_damaged_and_that_it_is_whole_again(roles: Roles):
    repository = SavepointRepository(roles.store("worker"), "checked")
    made = take_savepoint(repository, [a_source()], label("sp-1"))
    check_savepoint(repository, "sp-1", level="full", by="worker")
    blob = f"checked/blobs/{next(iter(made.blobs))}"
    content = repository.store.read(blob)
    repository.store.write(blob, bytes(len(content)))
    with pytest.raises(SavepointDamagedError):
        check_savepoint(repository, "sp-1", level="full", by="worker")
    assert (damaged_records(repository).keys(), verified_records(repository).keys()) == ({"sp-1"}, set())
    repository.store.write(blob, content)
    check_savepoint(repository, "sp-1", level="full", by="worker")
    assert (damaged_records(repository).keys(), verified_records(repository).keys()) == (set(), {"sp-1"})


def test_take_that_is_cancelled_leaves_its_blobs_to_prune(roles: Roles):
    repository, asked = SavepointRepository(roles.store("driver"), "cancelled"), iter([False] * 4)
    with pytest.raises(TakeCancelledError):
        take_savepoint(
            repository,
            [a_source()],
            label("sp-2"),
            cancelled=lambda: next(asked, True),
            packed_below_bytes=0,  # else it would be cancelled before it sends its pack
        )
    pruner = SavepointRepository(roles.store("prune"), "cancelled")
    assert pruner.blob_sizes()
    assert not list(pruner.store.list("cancelled/condemned/"))
    prune_job(
        JobBoard(pruner.store, "cancelled"), pruner, RetentionPolicy(max_count=1), holder="p", wait_s=60
    )
    assert not pruner.blob_sizes()


@pytest.mark.parametrize(
    "key",
    [
        f"{JOB}/runs/000001/claim.json",
        f"{JOB}/runs/000001/submit.json",
        f"{JOB}/runs/000001/takeover-order.json",
        f"{JOB}/migrations/m1/1-standby.json",
        f"{JOB}/producers.json",
    ],
)
@pytest.mark.parametrize("role", ["driver", "prune", "viewer"])
def test_only_the_worker_writes_what_callers_write(roles: Roles, role: str, key: str):
    store = roles.store(role)
    with pytest.raises(StoreDeniedError):
        store.write(key, b"{}")
    with pytest.raises(StoreDeniedError):
        store.create(key + "-new", b"{}")


def test_order_that_is_forged_with_the_workers_right_to_write_is_refused_by_name(
    world: TwoKeys, roles: Roles
):
    client = world.client()
    waiting = client.starts.standby(world.spec(), world.target(), claim_key="next", prepare_savepoint_id=None)
    board = JobBoard(roles.store("worker"), JOB)
    before = board.current()
    hostile.forge_order(board, waiting.generation)
    with pytest.raises(DriverFailedError, match=r"SIGNATURE: .*takeover-order\.json was expected"):
        client.drivers.wait_running(waiting.generation, timeout_s=60)
    assert board.current() == before


def test_prunes_key_cannot_publish_a_savepoint(roles: Roles):
    with pytest.raises(StoreDeniedError):
        take_savepoint(roles.repository("prune"), [a_source()], label("sp-3"))
    with pytest.raises(StoreDeniedError):
        roles.store("prune").write(f"{JOB}/blobs/sha256-x", b"x")


@pytest.mark.parametrize("role", ["viewer", "worker", "driver"])
def test_who_only_looks_changes_nothing_and_nobody_but_prune_deletes_blobs(
    roles: Roles,
    manifest: Any,  # noqa: ANN401
    role: str,
):
    if role == "viewer":
        with pytest.raises(StoreDeniedError):
            roles.store(role).write(f"{JOB}/reports/x.json", b"")
        with pytest.raises(StoreDeniedError):
            take_savepoint(roles.repository(role), [a_source()], label("sp-4"))
    with pytest.raises(StoreDeniedError):
        roles.repository(role).delete_blob(next(iter(manifest.blobs)))


def test_example_has_a_policy_for_each_role():
    assert set(policies()) == {"driver", "worker", "viewer", "prune"}
