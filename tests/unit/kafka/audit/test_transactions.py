"""Which transactions are meant, and which may be those of a producer at work: without a broker."""

from __future__ import annotations

import pytest

from airflow_flinkstyle.kafka.audit.open_transactions import OpenTransaction
from airflow_flinkstyle.kafka.audit.transactions import matching, require_idle
from airflow_flinkstyle.kafka.errors import TRANSACTION_IN_USE
from testbed.refusals import refuses

NOW_MS = 1_000_000


def a_transaction(transactional_id: str, *, age_s: float = 0, topic: str = "out") -> OpenTransaction:
    return OpenTransaction(
        transactional_id=transactional_id,
        producer_id=1,
        epoch=0,
        timeout_ms=60_000,
        state="Ongoing",
        partitions=frozenset({(topic, 0)}),
        updated_ms=NOW_MS - round(age_s * 1000),
        started_ms=0,
    )


def test_transactions_are_chosen_by_the_prefix_of_their_ids_and_by_topic():
    found = [a_transaction("line-0"), a_transaction("line-1", topic="other"), a_transaction("another-0")]
    assert matching(found, "") == found
    assert matching(found, "line-") == found[:2]
    assert matching(found, "line-", ["out"]) == found[:1]


@pytest.mark.parametrize(("min_age_ms", "age_s"), [(None, 60), (5_000, 5), (0, 0)])
def test_transactions_old_enough_count_as_those_of_the_dead(min_age_ms: int | None, age_s: float):
    require_idle([a_transaction("line-0", age_s=age_s)], NOW_MS, min_age_ms)


@pytest.mark.parametrize(("min_age_ms", "wanted"), [(None, "its time-out"), (50_000, "the 50 s")])
def test_one_that_is_too_young_refuses_all_and_is_named(min_age_ms: int | None, wanted: str):
    found = [a_transaction("line-0", age_s=70), a_transaction("line-1", age_s=40)]
    with refuses(TRANSACTION_IN_USE, match=f"1 of 2 .*line-1 .* 40 s ago, less than {wanted}"):
        require_idle(found, NOW_MS, min_age_ms)


def test_a_clock_that_is_behind_the_brokers_makes_nobody_look_dead():
    with refuses(TRANSACTION_IN_USE, match=" 0 s ago"):
        require_idle([a_transaction("line-0", age_s=-100)], NOW_MS, 1)


@pytest.mark.parametrize(
    ("transactional_id", "lineage"),
    [("a-b-12", "a-b"), ("out.7-complete", "out.7"), ("out-enricher", ""), ("out", ""), ("out-", "")],
)
def test_only_ids_as_a_sink_makes_them_are_taken_for_those_of_a_lineage(transactional_id: str, lineage: str):
    assert a_transaction(transactional_id).lineage == lineage
