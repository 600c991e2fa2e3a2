from __future__ import annotations

import random

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint.blobs.references import Reference
from airflow_flinkstyle.savepoint.retention.policy import (
    Candidate,
    Dispose,
    Keep,
    RetentionPolicy,
    plan_retention,
)

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS


def an_owner(by: str, at_ms: int, generation: int | None = None) -> Reference:
    return Reference(need="start", by=by, reason="", at_ms=at_ms, generation=generation, claims=True)


def a_candidate(name: str, *, age_days: float = 0, **changes: object) -> Candidate:
    fields = {
        "savepoint_id": name,
        "taken_at_ms": int(NOW_MS - age_days * DAY_MS),
        "missing_blobs": 0,
        "verified": None,
        "pinned": None,
        "in_use": None,
    }
    return Candidate(**{**fields, **changes})  # type: ignore[arg-type]


def decide(policy: RetentionPolicy, *candidates: Candidate) -> dict[str, Keep | Dispose]:
    newest_first = sorted(candidates, key=lambda one: (one.taken_at_ms, one.savepoint_id), reverse=True)
    plan = plan_retention("orders", newest_first, policy, now_ms=NOW_MS)
    assert len(plan.decisions) == len(candidates)
    return {decision.savepoint_id: decision for decision in plan.decisions}


def kept(policy: RetentionPolicy, *candidates: Candidate) -> set[str]:
    return {name for name, found in decide(policy, *candidates).items() if isinstance(found, Keep)}


def test_without_limits_everything_is_kept():
    assert kept(RetentionPolicy(), a_candidate("a", age_days=99), a_candidate("b")) == {"a", "b"}


def test_newest_are_kept_by_count_and_the_others_say_why_not():
    decisions = decide(
        RetentionPolicy(max_count=2),
        *(a_candidate(f"sp-{n}", age_days=n, verified="quick") for n in range(4)),
    )
    assert [type(decisions[f"sp-{n}"]) for n in range(4)] == [Keep, Keep, Dispose, Dispose]
    assert decisions["sp-2"].reason == "2 newer complete ones are kept, max_count is 2"


def test_older_ones_go_by_age():
    policy = RetentionPolicy(max_age_s=2 * 86_400)
    decisions = decide(
        policy, a_candidate("new", age_days=1, verified="full"), a_candidate("old", age_days=3)
    )
    assert decisions["old"] == Dispose(savepoint_id="old", reason="259200 s old, max_age_s is 172800")
    assert isinstance(decisions["new"], Keep)


def test_pinned_and_used_ones_are_kept_and_take_no_place():
    found = kept(
        RetentionPolicy(max_count=2, max_age_s=86_400),
        a_candidate("pinned", pinned="by ann: audit"),
        a_candidate("used", age_days=0.1, in_use="generation 3 runs from it"),
        a_candidate("new", age_days=0.2, verified="quick"),
        a_candidate("next", age_days=0.3),
        a_candidate("one too many", age_days=0.4),
        a_candidate("pinned and old", age_days=50, pinned="by ann: audit"),
    )
    assert found == {"pinned", "used", "new", "next", "pinned and old"}


@pytest.mark.parametrize("why", ["pinned", "in_use"])
def test_pinned_or_used_one_takes_no_place_even_if_it_is_the_last_verified_one(why: str):
    held = a_candidate("held", verified="full", **{why: "by ann: audit"})
    others = [a_candidate("next", age_days=1), a_candidate("one too many", age_days=2)]
    assert kept(RetentionPolicy(max_count=1), held, *others) == {"held", "next"}


def test_newest_complete_and_verified_one_is_kept_whatever_its_age():
    policy = RetentionPolicy(max_count=1, max_age_s=86_400)
    decisions = decide(
        policy,
        a_candidate("damaged", missing_blobs=2, verified="full"),
        a_candidate("unverified", age_days=0.1),
        a_candidate("good", age_days=50, verified="quick"),
        a_candidate("older", age_days=60, verified="full"),
    )
    assert decisions["good"] == Keep(
        savepoint_id="good", reason="the newest complete and verified (quick) one"
    )
    assert isinstance(decisions["older"], Dispose)


def test_where_none_is_verified_the_newest_complete_one_is_kept():
    policy = RetentionPolicy(max_age_s=1)
    decisions = decide(policy, a_candidate("a", age_days=2), a_candidate("b", age_days=1))
    assert decisions["b"] == Keep(savepoint_id="b", reason="the newest complete one")
    assert isinstance(decisions["a"], Dispose)


def test_savepoint_that_is_just_as_old_as_allowed_is_kept():
    aged = a_candidate("aged", age_days=2)
    assert kept(RetentionPolicy(max_age_s=2 * 86_400), a_candidate("new"), aged) == {"new", "aged"}


def test_what_is_kept_within_the_limits_tells_its_place():
    decisions = decide(RetentionPolicy(), a_candidate("new"), a_candidate("next", age_days=1))
    assert decisions["next"] == Keep(savepoint_id="next", reason="number 2 of the newest complete ones")


def test_incomplete_one_takes_no_place_and_goes_with_its_age():
    policy = RetentionPolicy(max_count=1)
    decisions = decide(
        policy,
        a_candidate("cut", missing_blobs=1),
        a_candidate("whole", age_days=1, verified="quick"),
        a_candidate("second", age_days=2),
        a_candidate("cut too", age_days=3, missing_blobs=4),
    )
    assert decisions["cut"] == Keep(savepoint_id="cut", reason="1 of its blobs are missing")
    assert isinstance(decisions["whole"], Keep)
    assert isinstance(decisions["cut too"], Dispose)
    assert decisions["cut too"].reason.endswith("4 of its blobs are missing")


def test_savepoint_owned_in_claim_mode_goes_once_there_is_a_newer_complete_one():
    owner = an_owner(by="generation 2", at_ms=NOW_MS - DAY_MS // 2)
    owned = a_candidate("owned", age_days=1, owned=owner)
    cut = a_candidate("cut", missing_blobs=1)
    assert kept(RetentionPolicy(), cut, owned) == {"cut", "owned"}
    decisions = decide(RetentionPolicy(), a_candidate("newer"), owned)
    assert decisions["owned"] == Dispose(
        savepoint_id="owned", reason="owned by generation 2, which has newer since"
    )
    pinned = a_candidate("owned", age_days=1, owned=owner, pinned="by ann: audit")
    assert kept(RetentionPolicy(), a_candidate("newer"), pinned) == {"newer", "owned"}


def test_savepoint_owned_by_a_rewound_job_stays_beside_newer_ones_from_before_the_rewind():
    owned = a_candidate("owned", age_days=3, owned=an_owner(by="generation 2", at_ms=NOW_MS - DAY_MS))
    before = [a_candidate("left behind", age_days=2, verified="full"), a_candidate("too", age_days=2.5)]
    decisions = decide(RetentionPolicy(max_count=1, max_age_s=86_400), *before, owned)
    assert decisions["owned"] == Keep(
        savepoint_id="owned", reason="owned by generation 2, which has no newer complete one yet"
    )
    assert kept(RetentionPolicy(), *before, owned, a_candidate("own")) == {"left behind", "too", "own"}
    at_once = a_candidate("taken in the moment of the restore", age_days=1)
    assert "owned" in kept(RetentionPolicy(), at_once, owned)


def test_owners_own_savepoint_is_known_by_its_run_and_by_no_clock():
    owned = a_candidate("owned", age_days=3, owned=an_owner(by="generation 2", at_ms=NOW_MS, generation=2))
    before = a_candidate("before", age_days=-1, taken_from_generation=1)  # its taker's clock is ahead
    imported = a_candidate("imported", age_days=-1)
    assert "owned" in kept(RetentionPolicy(), before, imported, owned)
    own = a_candidate("own", age_days=2, taken_from_generation=2)  # its taker's clock is behind
    decisions = decide(RetentionPolicy(), before, own, owned)
    assert decisions["owned"] == Dispose(
        savepoint_id="owned", reason="owned by generation 2, which has own since"
    )


def test_newest_state_outlives_every_limit_although_only_an_older_one_was_verified():
    decisions = decide(
        RetentionPolicy(max_count=1, max_age_s=86_400),
        a_candidate("newest", age_days=3),
        a_candidate("between", age_days=4),
        a_candidate("verified", age_days=90, verified="full"),
    )
    assert decisions["newest"] == Keep(savepoint_id="newest", reason="the newest complete one")
    assert isinstance(decisions["between"], Dispose)
    assert isinstance(decisions["verified"], Keep)


def test_what_a_check_found_damaged_is_no_state_to_restore():
    decisions = decide(
        RetentionPolicy(max_age_s=86_400),
        a_candidate("damaged", age_days=2, damaged=True),
        a_candidate("whole", age_days=3),
    )
    assert decisions["damaged"].reason.endswith("; a check found it damaged")
    assert isinstance(decisions["damaged"], Dispose)
    assert isinstance(decisions["whole"], Keep)


def test_what_the_job_has_left_behind_is_its_last_good_state_only_where_nothing_whole_is_on_its_line():
    why = "abandoned: generation 2 started from scratch"
    left = a_candidate("left", age_days=4, verified="full", beside=why)
    policy = RetentionPolicy(max_age_s=86_400)
    decisions = decide(policy, a_candidate("line", age_days=3), left)
    assert decisions["line"] == Keep(savepoint_id="line", reason="the newest complete one")
    assert isinstance(decisions["left"], Dispose)
    assert decisions["left"].reason.endswith(f"; {why}")
    assert kept(policy, a_candidate("line", age_days=3, damaged=True), left) == {"left"}


@pytest.mark.parametrize("wrong", [{"max_count": 0}, {"max_count": -1}, {"max_age_s": 0.0}])
def test_limits_that_would_keep_nothing_are_refused(wrong: dict[str, int]):
    with pytest.raises(BadInputError, match=f"expected {next(iter(wrong))} to be more than 0"):
        RetentionPolicy(**wrong)


def test_table_has_a_row_and_a_reason_for_each():
    plan = plan_retention(
        "orders",
        [a_candidate("b", verified="full"), a_candidate("a", age_days=3)],
        RetentionPolicy(max_count=1, max_age_s=86_400),
        now_ms=NOW_MS,
    )
    assert plan.job == "orders"
    assert plan.as_markdown().splitlines() == [
        "| savepoint | decision | reason |",
        "|---|---|---|",
        "| b | keep | the newest complete and verified (full) one |",
        "| a | dispose | 259200 s old, max_age_s is 86400 |",
    ]


def test_whatever_the_candidates_every_promise_is_kept():
    chance = random.Random(4)  # noqa: S311 - no secret
    for _ in range(500):
        candidates = [
            a_candidate(
                f"sp-{number}",
                age_days=chance.random() * 10,
                missing_blobs=chance.choice([0, 0, 0, 2]),
                verified=chance.choice([None, "quick", "full"]),
                pinned=chance.choice([None, None, "by ann: audit"]),
                in_use=chance.choice([None, None, "generation 1"]),
            )
            for number in range(chance.randrange(8))
        ]
        policy = RetentionPolicy(
            max_count=chance.choice([None, 1, 3]), max_age_s=chance.choice([None, 1.0, 400_000.0])
        )
        found = kept(policy, *candidates)
        assert {c.savepoint_id for c in candidates if c.pinned or c.in_use} <= found
        for group in (
            [c for c in candidates if c.missing_blobs == 0],
            [c for c in candidates if c.missing_blobs == 0 and c.verified],
        ):
            assert not group or max(group, key=lambda one: one.taken_at_ms).savepoint_id in found
        assert all(decision.reason for decision in decide(policy, *candidates).values())
