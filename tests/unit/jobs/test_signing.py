"""Nothing in the store is obeyed because it is in the store: what leads to a process is signed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import SignatureError
from airflow_flinkstyle.jobs import errors
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.errors import DriverFailedError
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.cutover import PHASES
from airflow_flinkstyle.jobs.migration.fail_back import last_migration
from airflow_flinkstyle.jobs.signing import KEY_VARIABLE, PREVIOUS_VARIABLE, Signer
from airflow_flinkstyle.jobs.spec import driver_env
from airflow_flinkstyle.protocol import signatures
from airflow_flinkstyle.protocol.driver_log import name_of
from airflow_flinkstyle.protocol.signatures import ORDER_KEYS_VARIABLE
from testbed.keys import SIGNER, SIGNING_ENV, SIGNING_KEY
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests import hostile
from tests.unit.jobs.conftest import World
from tests.unit.jobs.cutovers import a_cutover

if TYPE_CHECKING:
    from collections.abc import Callable


OTHER = "another-key-that-nobody-here-knows-of"


def put(world: World, key: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a stored record as who can write the store does."""
    values = json.loads(world.store.read(key))
    change(values)
    world.store.write(key, json.dumps(values).encode())


def run_evil(values: dict[str, Any]) -> None:
    values["launch"]["spec"]["script"] = "/tmp/evil.py"  # noqa: S108 - a name


def name_a_login(values: dict[str, Any]) -> None:
    options = {"kafka.bootstrap.servers": "evil:9092", "flinkstyle.connection": "kafka_payroll"}
    values["overrides"] = [{"role": "source", "servers": "old:9092", "options": options, "rename": {}}]


def unsign(values: dict[str, Any]) -> None:
    values["signature"] = ""


def sign_with_another_key(values: dict[str, Any]) -> None:
    values["signature"] = "0" * 64


@pytest.mark.parametrize("change", [run_evil, name_a_login, unsign, sign_with_another_key])
def test_relaunch_obeys_no_claim_that_was_changed_in_the_store(
    world: World, change: Callable[[dict[str, Any]], None]
):
    client = world.start()
    world.kill(1)
    put(world, f"{world.job}/runs/000001/claim.json", change)
    begun = len(world.submissions)
    with pytest.raises(SignatureError, match=r"claim.json was expected to be signed") as refused:
        client.drivers.ensure_running(client.view.settled_status())
    assert (refused.value.code, len(world.submissions)) == ("SIGNATURE", begun)
    assert "nothing was started or ended" in refused.value.state_after
    assert "previous_passwords" in refused.value.remedy


def copy_to_another_generation(world: World) -> JobClient:
    data = world.store.read(f"{world.job}/runs/000001/claim.json")
    world.store.write(f"{world.job}/runs/000002/claim.json", data)
    return world.client()


def copy_to_another_job(world: World) -> JobClient:
    other = World(world.folder, "payroll", world.store)
    for name in ("claim", "takeover-order"):
        data = world.store.read(f"{world.job}/runs/000001/{name}.json")
        world.store.write(f"payroll/runs/000002/{name}.json", data)
    return other.client()


def copy_to_another_root(world: World) -> JobClient:
    other = World(world.folder, world.job, MemoryStore(name="another-root"))
    other.store.write(
        f"{world.job}/runs/000002/claim.json", world.store.read(f"{world.job}/runs/000001/claim.json")
    )
    return other.client()


@pytest.mark.parametrize(
    "copied",
    [copy_to_another_generation, copy_to_another_job, copy_to_another_root],
    ids=lambda f: f.__name__,
)
def test_signed_claim_counts_only_where_its_caller_put_it(world: World, copied: Callable[[World], JobClient]):
    world.start()
    client = copied(world)
    with pytest.raises(SignatureError, match="another signature"):
        client.view.launch_of(2)
    assert world.client().view.launch_of(1)[0].script == "v1.py"


def test_rollback_and_upgrade_start_nothing_from_a_claim_that_was_changed(world: World):
    client = world.start()
    client.requests.stop("s", savepoint=False, timeout_s=10)
    put(world, f"{world.job}/runs/000001/claim.json", run_evil)
    with pytest.raises(SignatureError):
        client.starts.follow(1, claim_key="back")
    with pytest.raises(SignatureError):
        client.view.launch_of(1)
    assert world.board.generations() == [1]


def test_start_without_a_key_claims_nothing_and_says_how_to_make_one(world: World):
    client = JobClient(view=replace(world.client().view, signer=Signer()))
    for begin in (
        lambda: client.starts.start(world.spec(), world.target(), claim_key="start"),
        lambda: client.starts.standby(
            world.spec(), world.target(), claim_key="next", prepare_savepoint_id=None
        ),
    ):
        with refuses(errors.SIGNING_KEY, match=r"found none") as refused:
            begin()
        assert "secrets.token_urlsafe(32)" in refused.value.remedy
        assert KEY_VARIABLE in refused.value.remedy
    assert world.board.generations() == []


def test_who_has_no_key_still_looks_saves_and_stops(world: World):
    world.start()
    client = JobClient(view=replace(world.client().view, signer=Signer()))
    assert client.view.status().run.generation == 1
    client.requests.stop("s", savepoint=True, timeout_s=10)


def test_key_that_could_be_guessed_is_refused_and_not_shown():
    with refuses(errors.SIGNING_KEY, match="32 characters was expected, found one of 8") as refused:
        Signer.of("password")
    assert "password," not in str(refused.value.problem)
    assert SIGNING_KEY not in repr(SIGNER)


def test_key_may_be_changed_while_jobs_run(world: World):
    client = world.start()
    world.kill(1)
    changed = Signer.of_environment({KEY_VARIABLE: OTHER, PREVIOUS_VARIABLE: f"{SIGNING_KEY},"})
    with pytest.raises(SignatureError, match="another signature"):
        replace(client.view, signer=Signer.of(OTHER)).launch_of(1)
    again = replace(client, view=replace(client.view, signer=changed))
    again.drivers.ensure_running(again.view.settled_status())
    again.drivers.wait_running(1, timeout_s=10)
    again.requests.stop("s", savepoint=False, timeout_s=10)
    assert again.starts.start(world.spec(), world.target(), claim_key="next").generation == 2
    assert replace(client.view, signer=Signer.of(OTHER)).launch_of(2)[0].script == "v1.py"
    with pytest.raises(SignatureError):
        client.view.launch_of(2)


def test_driver_is_told_which_claim_was_verified_and_gets_no_key(world: World):
    client = JobClient(
        view=replace(world.client().view, base_env={**SIGNING_ENV, PREVIOUS_VARIABLE: OTHER, "LANG": "C"})
    )
    client.starts.start(
        replace(world.spec(), env={KEY_VARIABLE[:-4]: "x"}), world.target(), claim_key="start"
    )
    (submission,) = world.submissions
    argv, env = submission.argv, submission.env
    assert argv[argv.index("--digest") + 1] == client.view.signed_claim(1).digest
    stored = b"".join(world.store.read(info.key) for info in world.store.list())
    for text in (*argv, *env.values(), stored.decode()):
        assert SIGNING_KEY not in text
        assert OTHER not in text
    assert env["LANG"] == "C"


def test_key_reaches_no_driver_even_where_the_job_names_it(world: World):
    named = replace(world.spec(), env={KEY_VARIABLE: SIGNING_KEY})
    assert KEY_VARIABLE not in driver_env(named, world.target(), SIGNING_ENV)


def test_log_is_shown_of_the_file_that_a_signed_claim_names(world: World, monkeypatch: pytest.MonkeyPatch):
    client, asked = world.start(), []
    monkeypatch.setattr(world, "log_tail", lambda native_id, **_: asked.append(native_id["log"]) or "the end")
    assert client.view.log_tail(client.view.run(1)) == "the end"
    name = name_of(world.job, world.board.root.root_id, 1, client.view.run(1).claim.claim_id)
    assert asked == [str(world.folder / "logs" / name)]
    put(world, f"{world.job}/runs/000001/submit.json", lambda one: one["native_id"].update(log="/etc/passwd"))
    assert client.view.log_tail(client.view.run(1)).startswith(
        "(not shown: what the records name is not known"
    )
    assert len(asked) == 1
    put(world, f"{world.job}/runs/000001/claim.json", run_evil)
    assert client.view.log_tail(client.view.run(1)) == "(not shown: SIGNATURE)"


@pytest.mark.parametrize("change", hostile.FORGED, ids=str)
def test_driver_that_waits_takes_nothing_over_by_a_forged_order(world: World, change: dict[str, Any]):
    client = world.start()
    waiting = client.starts.standby(
        world.spec("v2.py"), world.target(), claim_key="next", prepare_savepoint_id=None
    )
    hostile.forge_order(client.view.board, waiting.generation, **change)
    with pytest.raises(DriverFailedError, match="SIGNATURE"):
        client.drivers.wait_running(waiting.generation, timeout_s=10)
    order = client.view.board.takeover_order(1)
    with pytest.raises(SignatureError, match=r"takeover-order\.json"):  # nor does a caller go on with it
        client.starts.order_takeover(waiting.generation, order)
    assert client.view.board.current().value.generation == 1


def test_what_a_driver_gets_to_verify_its_order_signs_nothing_else(world: World):
    client = world.start()
    (submission,) = world.submissions
    (given,) = submission.env[ORDER_KEYS_VARIABLE].split(",")
    assert given not in " ".join(submission.argv)
    stored = b"".join(world.store.read(info.key) for info in world.store.list())
    assert given.encode() not in stored
    claim, place = client.view.claim(1), client.view.board.claim_place(1)
    forged = replace(claim, signature=signatures.sign([given], claim.to_bytes(), place))
    world.store.write(f"{world.job}/runs/000001/claim.json", forged.to_bytes())
    with pytest.raises(SignatureError):
        client.view.launch_of(1)


# --- migrations ---------------------------------------------------------------------------------


def test_migration_obeys_nothing_of_its_journal_that_was_changed(world: World):
    world.start()
    cutover = a_cutover(world)
    cutover.run()
    for phase in ("standby", "stop", "rewrite"):
        (key,) = (info.key for info in world.store.list() if info.key.endswith(f"-{phase}.json"))
        put(world, key, lambda values: values["result"].update(old=7))
        with pytest.raises(SignatureError, match=f"{phase}.json was expected to be signed"):
            a_cutover(world).journal.result(phase)


def test_what_was_approved_is_obeyed_only_as_it_was_approved():
    store = MemoryStore()
    journal = CutoverJournal(store, "orders", "m1", PHASES, signer=SIGNER)
    journal.approve({"producer_switch": "manual"})
    (key,) = (info.key for info in store.list())
    store.write(key, store.read(key).replace(b"manual", b"os:abort"))
    with pytest.raises(SignatureError):
        journal.approved()
    fresh = CutoverJournal(store, "orders", "m2", PHASES, signer=SIGNER)
    store.write(key.replace("m1", "m2"), store.read(key))
    with pytest.raises(SignatureError):  # nor is another migration's
        fresh.approved()


def test_fail_back_reverses_no_migration_that_was_changed(world: World):
    world.start()
    a_cutover(world).run()
    assert last_migration(world.store, world.job, signer=SIGNER).migration_id == "m1"
    (key,) = (info.key for info in world.store.list() if info.key.endswith("-translate.json"))
    put(world, key, lambda values: values["result"].update(plan=values["result"]["plan"] + " "))
    with pytest.raises(SignatureError):
        last_migration(world.store, world.job, signer=SIGNER)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b"null", b"7", b"\xff\xfe", b"[" * 100_000, b"1" * 5_000),
        *(
            b'{"signature": 1}',
            b'{"signature": "\xc3\xa9"}',
            b'{"signature": "\\ud800"}',
            b'{"signature": {}}',
        ),
    ],
    ids=lambda data: repr(data[:24]),
)
def test_whatever_stands_in_the_store_is_refused_and_nothing_else_happens(data: bytes):
    with pytest.raises(SignatureError):
        SIGNER.require(data, "s3://b/j/runs/000001/claim.json")


def test_signature_is_of_the_fields_that_stand_there():
    place, data = "s3://b/j/runs/000001/claim.json", {"version": 1, "claim_key": "k", "lease_s": 30.0}
    signed = {**data, "signature": ""}
    signature = _signature(signed, place)
    SIGNER.require(json.dumps({**signed, "signature": signature}, indent=2).encode(), place)
    with pytest.raises(SignatureError):
        SIGNER.require(json.dumps({**signed, "more": 1, "signature": signature}).encode(), place)


def _signature(values: dict[str, Any], place: str) -> str:
    """Sign as docs/security.md says, without this package's code."""
    import hashlib
    import hmac

    fields = {name: value for name, value in values.items() if name != "signature"}
    text = json.dumps([place, fields], sort_keys=True, separators=(",", ":"))
    return hmac.new(SIGNING_KEY.encode(), text.encode(), hashlib.sha256).hexdigest()
