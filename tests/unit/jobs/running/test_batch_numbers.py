"""Which batch numbers are unused, by what the runs of a job have told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.start.rewinds import UNSEEN_BATCHES, unused_from
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.home import Home, OutsideCheckpoint
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.query_records import QueryStatus, Sinks
from airflow_flinkstyle.protocol.records import Claim, Heartbeat, TakeoverOrder
from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
from airflow_flinkstyle.types import BatchId, Generation, Incarnation
from testbed.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.protocol.home import HomeState
    from airflow_flinkstyle.protocol.records import AgentState
    from airflow_flinkstyle.types import Rewind

SAVED = 4


def a_savepoint(query_id: str = "q-1") -> Manifest:
    query = QuerySnapshot(
        name="totals", query_id=query_id, batch_id=BatchId(SAVED), checkpoint_location="x",
        planned_offsets=None, pinned_confs={}, kafka={}, files=(),
    )  # fmt: skip
    return Manifest(
        savepoint_id="sp-1", job="orders", parent=None, alignment="none", taken_at_ms=1,
        taken_from_generation=1, batches_run=1, spark_version="4.2.0", evidence={}, queries=(query,),
    )  # fmt: skip


class Runs:
    """The records of a job's runs, one generation after another."""

    def __init__(self) -> None:
        self.board, self.generation = JobBoard(MemoryStore(), "orders"), 0

    def add(
        self,
        state: AgentState,
        batch: int | None,
        *,
        query_id: str = "q-1",
        incarnation: int = 1,
        begun: Mapping[str, int] | None = None,
        under_way: bool = False,
    ) -> Runs:
        """Add a run; ``batch`` None: it says nothing of the query."""
        self.generation += 1
        generation = Generation(self.generation)
        claim = Claim(
            claim_key=f"k-{generation}", follows=None, checkpoint_location="x", prepare_savepoint_id=None,
            overrides=(), lease_s=1.0, launch={}, claimed_at_ms=1,
        )  # fmt: skip
        self.board.create_claim(generation, claim)
        order = TakeoverOrder(
            savepoint_id=None,
            closed_at=None,
            expected={},
            parent=BEGINNING,
            rewind="fork" if begun else "continue",
            unused_from=begun or {},
        )
        self.board.create_takeover_order(generation, order)
        told = {}
        if batch is not None:
            told["totals"] = QueryStatus(
                query_id=query_id,
                batch_id=BatchId(batch),
                batch_committed_at_ms=1,
                sources={},
                sinks=Sinks(under_way=under_way),
            )
        words = Heartbeat(
            incarnation=Incarnation(incarnation), state=state, beat=1, written_at_ms=1, spark_version="4.2.0",
            application_id="app", queries=told,
        )  # fmt: skip
        self.board.beat(generation, words, seen=None)
        return self

    def number(self, manifest: Manifest | None = None) -> int | None:
        return unused_from(self.board, manifest or a_savepoint(), "fork").get("totals")


def test_number_is_behind_the_newest_batch_that_a_run_that_closed_could_have_planned():
    assert Runs().add("closed", 9).number() == 10


def test_every_lineage_of_the_job_counts_and_not_only_the_savepoints():
    runs = Runs().add("closed", 9).add("closed", 70, query_id="q-2").add("closed", 12)
    assert runs.number() == 71


@pytest.mark.parametrize("state", ["running", "draining", "standby", "starting"])
def test_run_that_ended_without_a_word_may_have_gone_far_beyond_its_last_heartbeat(state: AgentState):
    assert Runs().add(state, 9).add("closed", 11).number() == 11 + UNSEEN_BATCHES
    assert Runs().add("closed", 9).add(state, None).number() == 9 + UNSEEN_BATCHES
    assert Runs().add(state, 2).number() == SAVED + UNSEEN_BATCHES  # the savepoint tells more


def test_words_of_a_driver_that_failed_are_exact_unless_it_repeats_its_predecessors():
    assert Runs().add("failed", 9).number() == 11, "a function may have failed in batch 10"
    assert Runs().add("failed", 9, incarnation=2).number() == 10 + UNSEEN_BATCHES
    assert Runs().add("closed", 9, incarnation=2).number() == 10


def test_fork_that_died_before_its_first_word_has_used_the_numbers_that_it_was_given():
    runs = Runs().add("closed", 9).add("running", None, begun={"totals": 10})
    assert runs.number() == 10 + UNSEEN_BATCHES
    failed = Runs().add("closed", 9).add("failed", None, begun={"totals": 10})
    assert failed.number() == 11


@pytest.mark.parametrize("rewind", ["continue", "fork", "re-emit"])
def test_query_that_the_savepoint_does_not_hold_has_the_numbers_that_runs_gave_it(rewind: Rewind):
    without = replace(a_savepoint(), queries=())
    assert unused_from(Runs().add("closed", 9).board, without, rewind) == {"totals": 10}
    assert unused_from(Runs().board, without, rewind) == {}


def test_batch_that_was_planned_when_a_run_ended_counts_as_used():
    assert Runs().add("closed", 9, under_way=True).number() == 11


def test_savepoint_from_elsewhere_is_told_every_number_that_runs_used_here():
    def used(runs: Runs) -> Mapping[str, int | None]:
        return unused_from(runs.board, a_savepoint("q-from-outside"), "continue")

    assert used(Runs().add("closed", None)) == {}
    assert used(Runs().add("closed", 9)) == {"totals": 10}
    assert used(Runs().add("running", 9)) == {"totals": 9 + UNSEEN_BATCHES}


def test_nothing_is_said_of_a_lineage_that_no_run_of_this_job_had():
    assert Runs().number() is None
    assert Runs().add("closed", 9).number(a_savepoint("q-from-outside")) is None


def test_nothing_is_said_if_the_words_of_a_run_that_may_have_had_the_query_are_lost():
    closed_before_the_query_began = Runs().add("closed", 9).add("closed", None, incarnation=2)
    assert closed_before_the_query_began.number() is None
    before_the_query_was_there = Runs().add("closed", None, incarnation=2).add("closed", 9)
    assert before_the_query_was_there.number() == 10
    without_the_query = Runs().add("closed", 9).add("closed", None)
    assert without_the_query.number() == 10


def of_plain_spark(runs: Runs, state: HomeState, batch: int, *, planned: bool = False) -> Runs:
    """Say where plain Spark has, or had, the query."""
    outside = OutsideCheckpoint(location="x", query_id="q-1", batch_id=BatchId(batch), planned=planned)
    home = Home(
        state=state, checkpoints={"totals": outside}, savepoint_id="sp-2", after=None, by="ann", at_ms=1
    )  # fmt: skip
    runs.board.put_home(home, seen=None)
    return runs


def test_batches_that_plain_spark_ran_until_the_adoption_count_as_used():
    """A function that remembers ids has seen them, and would leave out what a rewind writes under them."""
    assert of_plain_spark(Runs().add("closed", 9), "adopted", 500).number() == 501
    assert of_plain_spark(Runs().add("closed", 9), "adopted", 500, planned=True).number() == 502
    assert of_plain_spark(Runs().add("closed", 900), "adopted", 500).number() == 901
    assert of_plain_spark(Runs(), "adopted", 500).number() == 501, "no run of this package yet"


@pytest.mark.parametrize("state", ["left", "watched"])
def test_nothing_is_said_of_a_query_that_plain_spark_has(state: HomeState):
    assert of_plain_spark(Runs().add("closed", 9), state, 9).number() is None
