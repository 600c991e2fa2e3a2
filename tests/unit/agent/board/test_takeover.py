from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.core.board import takeover
from airflow_flinkstyle.agent.core.board.heartbeat import HeartbeatWriter
from airflow_flinkstyle.agent.core.board.takeover import DriverRun, NotOursError
from airflow_flinkstyle.agent.core.errors import NOT_CLAIMED, SupersededError
from airflow_flinkstyle.agent.spark.process import DriverProcess
from airflow_flinkstyle.errors import SignatureError
from airflow_flinkstyle.jobs.signing import Signer
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.errors import PREDECESSOR
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.query_records import QueryStatus
from airflow_flinkstyle.protocol.records import Current, DriverEnd, Submit, TakeoverOrder
from airflow_flinkstyle.protocol.signatures import ORDER_KEYS_VARIABLE
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.types import BatchId
from testbed.keys import SIGNER, SIGNING_KEY
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests import hostile
from tests.unit.agent.conftest import G1, G2, G3, I1, I2, a_claim, a_heartbeat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.protocol.records import Claim
    from airflow_flinkstyle.storage.base import Versioned
    from airflow_flinkstyle.types import Generation, Incarnation
    from tests.unit.agent.conftest import Clock

OTHER = "another-key-that-nobody-here-knows-of"


@pytest.fixture
def board() -> JobBoard:
    return JobBoard(MemoryStore(), "orders")


def make_current(board: JobBoard, generation: Generation, incarnation: Incarnation = I1) -> None:
    board.take_current(Current(generation=generation, incarnation=incarnation), seen=board.current())


def an_order(closed_at: Mapping[str, int] | None = None) -> TakeoverOrder:
    return TakeoverOrder(savepoint_id=None, closed_at=closed_at, expected={}, parent=BEGINNING)


def at_batch(batch: int) -> dict[str, QueryStatus]:
    beat = QueryStatus(query_id="q", batch_id=BatchId(batch), batch_committed_at_ms=0, sources={})
    return {"orders": beat}


def test_driver_without_a_claim_is_refused(board: JobBoard) -> None:
    with refuses(NOT_CLAIMED, match="claim of generation 2 of job orders"):
        takeover.begin(board, G2, DriverProcess())
    assert board.incarnations(G2) == []


def test_driver_of_a_closed_generation_leaves_before_it_begins(board: JobBoard) -> None:
    board.create_claim(G2, a_claim())
    board.beat(G2, a_heartbeat(state="closed"), seen=None)
    with pytest.raises(NotOursError, match="closed"):
        takeover.begin(board, G2, DriverProcess())
    assert board.incarnations(G2) == []


@pytest.mark.parametrize(("running", "begins"), [(G1, True), (G2, True), (G3, False)])
def test_only_the_own_and_the_followed_generation_may_be_current(
    board: JobBoard, running: Generation, *, begins: bool, clock: Clock
) -> None:
    board.create_claim(G2, a_claim(follows=G1))
    make_current(board, running)
    if begins:
        assert takeover.begin(board, G2, DriverProcess(), clock=clock).incarnation == 1
    else:
        with pytest.raises(NotOursError, match="names generation 3"):
            takeover.begin(board, G2, DriverProcess(), clock=clock)


def test_relaunch_waits_for_the_lease_of_the_earlier_incarnation(board: JobBoard, clock: Clock) -> None:
    board.create_claim(G1, a_claim())
    takeover.begin(board, G1, DriverProcess(), clock=clock)
    make_current(board, G1)
    version = board.beat(G1, a_heartbeat(), seen=None)
    clock.at[1003.0] = lambda: board.beat(G1, a_heartbeat(beat=2), seen=version)
    driver_run = takeover.begin(board, G1, DriverProcess(), clock=clock)
    assert driver_run.incarnation == 2
    assert 1009.0 <= clock.now_s < 1011.0  # 6 s after the beat at 1003 s
    assert driver_run.prior is not None
    assert driver_run.prior.value.beat == 2


class SlowStore(MemoryStore):
    """Some of its answers come late: it has looked first, and others write meanwhile."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.late_s: Iterator[float] = iter(())

    def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
        found = super().get(key, unless=unless)
        self.clock.sleep(next(self.late_s, 0.0) if key.endswith("heartbeat.json") else 0.0)
        return found


@pytest.mark.parametrize("late_s", [(7.0,), (0.1, 7.0), (5.9, 5.9)])
def test_driver_is_not_taken_for_silent_while_an_answer_is_on_its_way(
    late_s: tuple[float, ...], clock: Clock
) -> None:
    """It beats once in its lease of 6 s, shortly before each answer comes."""
    store = SlowStore(clock)
    board = JobBoard(store, "orders")
    board.create_claim(G1, a_claim())
    version = board.beat(G1, a_heartbeat(), seen=None)
    beats: list[float] = []

    def beat() -> None:
        nonlocal version
        version = board.beat(G1, a_heartbeat(beat=2 + len(beats)), seen=version)
        beats.append(clock.now_s)

    clock.at = {1000.0 + 5.0 * number: beat for number in range(1, 5)}
    store.late_s = iter(late_s)
    takeover.wait_until_silent(board, G1, 6.0, check=lambda: None, clock=clock)
    assert len(beats) == 4
    assert clock.now_s >= beats[-1] + 6.0


def a_submit() -> Submit:
    return Submit(key="k", deployment="detached", state="submitted", asked_at_ms=1)


def test_driver_that_another_was_asked_for_after_leaves_before_it_begins(board: JobBoard) -> None:
    board.create_claim(G1, a_claim())
    for number in (1, 2):
        board.create_submit(G1, number, a_submit())
    with pytest.raises(NotOursError, match="submit 2 of generation 1 has taken the place of 1"):
        takeover.begin(board, G1, DriverProcess(), submit=1)
    assert board.incarnations(G1) == []
    assert takeover.begin(board, G1, DriverProcess(), submit=2).incarnation == 1
    record = board.incarnation(G1, I1)
    assert record is not None
    assert record.submit == 2


def test_driver_that_is_given_up_while_it_waits_leaves(board: JobBoard, clock: Clock) -> None:
    board.create_claim(G1, a_claim())
    board.create_submit(G1, 1, a_submit())
    board.beat(G1, a_heartbeat(), seen=None)
    clock.at[1003.0] = lambda: board.create_submit(G1, 2, a_submit())
    with pytest.raises(NotOursError, match="taken the place"):
        takeover.begin(board, G1, DriverProcess(), submit=1, clock=clock)


def test_surplus_driver_leaves_once_the_earlier_one_is_seen_to_live(board: JobBoard, clock: Clock) -> None:
    board.create_claim(G1, a_claim())
    versions = [board.beat(G1, a_heartbeat(), seen=None)]

    def beat() -> None:
        versions.append(board.beat(G1, a_heartbeat(beat=len(versions) + 1), seen=versions[-1]))
        clock.at[clock.now_s + 1.0] = beat

    clock.at[1001.0] = beat
    with pytest.raises(NotOursError, match="an earlier driver of generation 1 lives"):
        takeover.begin(board, G1, DriverProcess(), clock=clock)
    assert 1012.0 <= clock.now_s < 1015.0  # two leases: one that was killed is silent by then


def test_relaunch_does_not_wait_for_one_that_said_it_failed(board: JobBoard, clock: Clock) -> None:
    board.create_claim(G1, a_claim())
    board.beat(G1, a_heartbeat(state="failed", error=("X", "y")), seen=None)
    takeover.begin(board, G1, DriverProcess(), clock=clock)
    assert clock.now_s == 1000.0


def test_relaunch_leaves_if_the_earlier_incarnation_closes_meanwhile(board: JobBoard, clock: Clock) -> None:
    board.create_claim(G1, a_claim())
    version = board.beat(G1, a_heartbeat(), seen=None)
    clock.at[1002.0] = lambda: board.beat(G1, a_heartbeat(state="closed"), seen=version)
    with pytest.raises(NotOursError, match="closed"):
        takeover.begin(board, G1, DriverProcess(), clock=clock)


def followed(board: JobBoard, claim: Claim, order: TakeoverOrder, clock: Clock) -> None:
    driver_run = DriverRun(generation=G2, incarnation=I1, claim=claim, prior=None, seen=None, clock=clock)
    takeover.require_predecessor(board, driver_run, order, lambda: None)


def test_predecessor_must_have_closed_at_exactly_the_named_batches(board: JobBoard, clock: Clock) -> None:
    claim = a_claim(follows=G1)
    board.create_claim(G1, a_claim(checkpoint_location="/checkpoints/1"))
    version = board.beat(G1, a_heartbeat(queries=at_batch(7)), seen=None)
    with refuses(PREDECESSOR, match="found it running at"):
        followed(board, claim, an_order({"orders": 7}), clock)
    board.beat(G1, a_heartbeat(state="closed", queries=at_batch(7)), seen=version)
    followed(board, claim, an_order({"orders": 7}), clock)
    with refuses(PREDECESSOR, match="batch 8 of orders, found it closed at batch 7 of orders"):
        followed(board, claim, an_order({"orders": 8}), clock)


def test_checkpoint_of_a_predecessor_that_did_not_close_is_not_adopted(board: JobBoard, clock: Clock) -> None:
    board.create_claim(G1, a_claim(checkpoint_location="/checkpoints/1"))
    board.beat(G1, a_heartbeat(), seen=None)
    with refuses(PREDECESSOR, match="/checkpoints/1 is adopted"):
        followed(board, a_claim(follows=G1, checkpoint_location="/checkpoints/1"), an_order(), clock)
    followed(board, a_claim(follows=G1), an_order(), clock)
    assert clock.now_s >= 1012.0  # both waited for the lease


def test_predecessor_that_was_started_again_is_not_waited_for(board: JobBoard, clock: Clock) -> None:
    make_current(board, G1, I1)
    version = board.beat(G1, a_heartbeat(), seen=None)
    order = replace(an_order(), ended=I1)

    def relaunched() -> None:
        make_current(board, G1, I2)
        board.beat(G1, a_heartbeat(beat=2), seen=version)

    clock.at[1003.0] = relaunched
    with refuses(PREDECESSOR, match=r"Driver 1 of generation 1 .* driver 2 has continued the job"):
        followed(board, a_claim(follows=G1), order, clock)
    assert clock.now_s < 1004.0
    with refuses(PREDECESSOR, match="driver 2 has continued"):  # one that begins later
        followed(board, a_claim(follows=G1), order, clock)
    followed(board, a_claim(follows=G1), replace(order, ended=I2), clock)


# --- an end that was seen -------------------------------------------------------------------------

END = DriverEnd(generation=G1, incarnation=I1, seen="its process is gone", seen_at_ms=0)
SILENT = replace(END, seen="its heartbeat did not change", last_beat=a_heartbeat().beat, silent_s=6.0)


def keys_of(board: JobBoard, generation: Generation, signer: Signer = SIGNER) -> tuple[str, ...]:
    claim = board.claim(generation)
    assert claim is not None
    given = signer.order_environment(board.claim_place(generation), claim)
    return tuple(given[ORDER_KEYS_VARIABLE].split(","))


def tell_end(
    board: JobBoard, waiting: Generation, end: DriverEnd = END, signer: Signer = SIGNER, **place: str
) -> None:
    claim = board.claim(waiting)
    assert claim is not None
    places = {
        "place": board.driver_end_place(waiting, end.generation, end.incarnation),
        "claim_place": board.claim_place(waiting),
        **place,
    }
    board.write_driver_end(waiting, signer.sign_for_driver(end, claim=claim, **places))


def killed(board: JobBoard) -> None:
    """Leave driver 1 of generation 1 as a kill -9 does."""
    board.create_claim(G1, a_claim(claim_id="first", checkpoint_location="/checkpoints/1"))
    board.create_incarnation(G1, I1, DriverProcess().record())
    board.beat(G1, a_heartbeat(), seen=None)
    make_current(board, G1)


def test_relaunch_does_not_wait_for_a_driver_whose_end_was_seen(board: JobBoard, clock: Clock) -> None:
    killed(board)
    tell_end(board, G1)
    driver_run = takeover.begin(board, G1, DriverProcess(), order_keys=keys_of(board, G1), clock=clock)
    assert (driver_run.incarnation, clock.now_s) == (2, 1000.0)
    assert driver_run.prior is not None


def test_next_generation_does_not_wait_for_a_driver_whose_end_was_seen(board: JobBoard, clock: Clock) -> None:
    killed(board)
    claim = a_claim(claim_id="second", follows=G1)
    board.create_claim(G2, claim)
    tell_end(board, G2)
    driver_run = DriverRun(
        generation=G2, incarnation=I1, claim=claim, prior=None, seen=board.current(),
        order_keys=keys_of(board, G2), clock=clock,
    )  # fmt: skip
    takeover.require_predecessor(board, driver_run, replace(an_order(), ended=I1), lambda: None)
    assert clock.now_s == 1000.0


def test_relaunch_does_not_wait_once_more_for_a_driver_that_a_caller_saw_silent(
    board: JobBoard, clock: Clock
) -> None:
    killed(board)
    tell_end(board, G1, SILENT)
    takeover.begin(board, G1, DriverProcess(), order_keys=keys_of(board, G1), clock=clock)
    assert clock.now_s == 1000.0


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({"end": replace(SILENT, last_beat=0)}, id="another heartbeat was written since"),
        pytest.param({"end": replace(SILENT, silent_s=5.9)}, id="silent for less than this lease"),
        pytest.param({"end": replace(END, incarnation=I2)}, id="of another driver"),
        pytest.param({"end": replace(END, generation=G2)}, id="of another generation"),
        pytest.param({"end": replace(END, incarnation=I2), "moved": True}, id="moved to this one's place"),
        pytest.param({"signer": Signer((OTHER,))}, id="by who has another key"),
        pytest.param({"place": "elsewhere/orders/runs/000001/ended/000001-000001.json"}, id="in a copy"),
        pytest.param({"claim_place": "elsewhere"}, id="for another claim"),
        pytest.param({"unsigned": True}, id="unsigned"),
    ],
)
def test_end_that_nobody_who_may_has_said_of_this_driver_is_not_believed(
    board: JobBoard, clock: Clock, told: dict[str, Any]
) -> None:
    killed(board)
    unsigned, moved = told.pop("unsigned", False), told.pop("moved", False)
    if unsigned:
        board.write_driver_end(G1, END)
    else:
        tell_end(board, G1, **told)
    if moved:  # what is signed of one driver does not tell of another
        data = board.store.read("orders/runs/000001/ended/000001-000002.json")
        board.store.create("orders/runs/000001/ended/000001-000001.json", data)
    takeover.begin(board, G1, DriverProcess(), order_keys=keys_of(board, G1), clock=clock)
    assert clock.now_s >= 1006.0  # its lease


def test_end_is_not_believed_by_a_driver_that_can_verify_nothing(board: JobBoard, clock: Clock) -> None:
    killed(board)
    tell_end(board, G1)
    takeover.begin(board, G1, DriverProcess(), clock=clock)
    assert clock.now_s >= 1006.0


def test_end_of_a_driver_says_nothing_of_the_next_one_that_speaks(board: JobBoard, clock: Clock) -> None:
    """It was started again since, and lives: a third one leaves, as without any word."""
    killed(board)
    tell_end(board, G1)
    slot = board.heartbeat(G1)
    assert slot is not None
    version = board.beat(G1, a_heartbeat(incarnation=I2), seen=slot.version)

    def beat() -> None:
        nonlocal version
        version = board.beat(G1, a_heartbeat(incarnation=I2, beat=int(clock.now_s)), seen=version)
        clock.at[clock.now_s + 1.0] = beat

    clock.at[1001.0] = beat
    with pytest.raises(NotOursError, match="an earlier driver of generation 1 lives"):
        takeover.begin(board, G1, DriverProcess(), order_keys=keys_of(board, G1), clock=clock)


def test_of_two_drivers_that_know_of_the_same_end_the_second_to_speak_ends(
    board: JobBoard, clock: Clock
) -> None:
    killed(board)
    tell_end(board, G1)
    writers = []
    for _ in range(2):
        one = takeover.begin(board, G1, DriverProcess(), order_keys=keys_of(board, G1), clock=clock)
        assert one.prior is not None
        seen = one.prior.version
        writers.append(
            HeartbeatWriter(board, G1, one.incarnation, lease_s=6.0, seen=seen, queries=dict, before={})
        )
    writers[1].beat("starting")
    with pytest.raises(SupersededError):
        writers[0].beat("starting")


def a_turn(board: JobBoard, generation: Generation, incarnation: Incarnation = I1) -> DriverRun:
    claim = a_claim(follows=G1)
    seen = board.current()
    return DriverRun(generation=generation, incarnation=incarnation, claim=claim, prior=None, seen=seen)


def test_of_two_drivers_that_follow_the_same_generation_one_takes_over(board: JobBoard) -> None:
    make_current(board, G1)
    second, third = a_turn(board, G2), a_turn(board, G3)
    takeover.take_current(board, third, third.seen)
    with pytest.raises(NotOursError, match="another driver"):
        takeover.take_current(board, second, second.seen)
    current = board.current()
    assert current is not None
    assert current.value.generation == G3


def test_driver_that_slept_through_a_takeover_of_its_own_generation_leaves(board: JobBoard) -> None:
    make_current(board, G2, I1)
    driver_run = a_turn(board, G2, I1)
    make_current(board, G2, I2)
    with pytest.raises(NotOursError):
        takeover.take_current(board, driver_run, driver_run.seen)


def test_takeover_whose_answer_was_lost_counts_when_it_is_tried_again() -> None:
    store = MemoryStore()
    board = JobBoard(store, "orders")
    driver_run = a_turn(board, G1)
    store.fail_at(1, lost_answer=True)
    with pytest.raises(StoreUnavailableError):
        takeover.take_current(board, driver_run, None)
    takeover.take_current(board, driver_run, None)


def test_driver_that_reaches_another_store_of_the_same_name_is_refused(board: JobBoard) -> None:
    board.create_claim(G2, a_claim(claim_id="theirs"))
    with refuses(NOT_CLAIMED, match=r"Claim ours of generation 2 .* expected in .*, found theirs"):
        takeover.submitted_claim(board, G2, "ours")
    assert takeover.submitted_claim(board, G2, "theirs").claim_id == "theirs"


def test_driver_obeys_no_claim_that_was_changed_since_its_caller_verified_it(board: JobBoard) -> None:
    board.create_claim(G2, a_claim(claim_id="ours"))
    data = board.claim_data(G2) or b""
    digest = hashlib.sha256(data).hexdigest()
    assert takeover.submitted_claim(board, G2, "ours", digest=digest).claim_id == "ours"
    board.store.write("orders/runs/000002/claim.json", data.replace(b"/checkpoints", b"/evil-points"))
    with refuses(NOT_CLAIMED, match="as it was when its signature was verified"):
        takeover.submitted_claim(board, G2, "ours", digest=digest)


def waiting_for(board: JobBoard, signer: Signer = SIGNER) -> DriverRun:
    """Return a driver that waits for its order, with what its caller gave it."""
    claim = a_claim(claim_id="ours")
    if board.claim(G2) is None:
        board.create_claim(G2, claim)
    keys = signer.order_environment(board.claim_place(G2), claim)[ORDER_KEYS_VARIABLE]
    return DriverRun(
        generation=G2, incarnation=I1, claim=claim, prior=None, seen=None, order_keys=tuple(keys.split(","))
    )


def give_order(board: JobBoard, claim: Claim, signer: Signer = SIGNER, **place: str) -> None:
    places = {"place": board.takeover_order_place(G2), "claim_place": board.claim_place(G2), **place}
    board.create_takeover_order(G2, signer.sign_for_driver(an_order(), claim=claim, **places))


@pytest.mark.parametrize("change", hostile.FORGED, ids=str)
def test_driver_obeys_no_order_that_no_caller_gave(board: JobBoard, change: dict[str, Any]) -> None:
    driver_run = waiting_for(board)
    assert takeover.signed_order(board, driver_run) is None
    hostile.forge_order(board, G2, **change)
    with pytest.raises(SignatureError, match=r"takeover-order.json was expected to be signed") as refused:
        takeover.signed_order(board, driver_run)
    assert refused.value.state_after.startswith("No query was started")


def test_order_counts_for_its_own_claim_and_place_only(board: JobBoard) -> None:
    driver_run = waiting_for(board)
    for claim, place in (
        (driver_run.claim, {"place": board.takeover_order_place(G1)}),
        (driver_run.claim, {"claim_place": board.claim_place(G1)}),
        (a_claim(claim_id="of the same place, before"), {}),
    ):
        give_order(board, claim, **place)
        with pytest.raises(SignatureError, match="another signature"):
            takeover.signed_order(board, driver_run)
        board.store.delete("orders/runs/000002/takeover-order.json")
    give_order(board, driver_run.claim)
    assert takeover.signed_order(board, driver_run) is not None


@pytest.mark.parametrize("driver_is_older", [True, False])
def test_order_is_known_though_the_key_was_changed_meanwhile(
    board: JobBoard, *, driver_is_older: bool
) -> None:
    changed = Signer.of(OTHER, [SIGNING_KEY])
    of_driver, of_caller = (SIGNER, changed) if driver_is_older else (changed, SIGNER)
    driver_run = waiting_for(board, of_driver)
    give_order(board, driver_run.claim, of_caller)
    assert takeover.signed_order(board, driver_run) is not None


@pytest.mark.parametrize("lost_answer", [False, True])
def test_driver_begins_once_although_any_one_call_of_its_store_fails(clock: Clock, *, lost_answer: bool):
    calls = fails_at = 1
    while calls >= fails_at:
        store = MemoryStore()
        board = JobBoard(store, "orders")
        board.create_claim(G1, a_claim())
        store.fail_at(fails_at, lost_answer=lost_answer)
        driver_run = takeover.begin(board, G1, DriverProcess(), clock=clock)
        calls = store.calls
        store.fail_at(None)
        assert (driver_run.incarnation, board.incarnations(G1)) == (1, [1])
        fails_at += 1
    assert calls > 5
