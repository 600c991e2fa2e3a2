"""The fence of a migration's window, with attempts that die or sleep; the brokers are a dictionary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.errors import LATE_WRITES, AttemptSupersededError, FenceStandsError
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration import fence_phase
from airflow_flinkstyle.jobs.migration.fence_phase import (
    drop_fence,
    late_writes,
    note_ends,
    raise_fence,
    require_quiet,
)
from airflow_flinkstyle.kafka.errors import ClusterUnreachableError, FenceDownError
from airflow_flinkstyle.kafka.fence.acls import EVERYBODY, AclRule
from airflow_flinkstyle.kafka.fence.fences import FenceRecord
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset
from testbed.keys import SIGNER
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses

if TYPE_CHECKING:
    from collections.abc import Collection

OURS = AclRule(name="orders", principal=EVERYBODY, operation="WRITE", permission="deny")
THEIRS = AclRule(name="orders", principal="User:shop", operation="READ", permission="allow")


@dataclass
class Cluster:
    """What a cluster holds, and the fence around it."""

    entries: set[AclRule] = field(default_factory=lambda: {THEIRS})
    end: int = 10

    @property
    def fence(self) -> Cluster:
        return self

    def plan(self, topics: Collection[str]) -> FenceRecord:
        added, stood = ((), (OURS,)) if OURS in self.entries else ((OURS,), ())
        return FenceRecord(kind="acl", cluster_id="c", topics=tuple(topics), rules=added, stood=stood)

    def put(self, record: FenceRecord) -> None:
        self.entries |= set(record.rules)

    def missing(self, record: FenceRecord) -> tuple[AclRule, ...]:
        return tuple(rule for rule in record.needed if rule not in self.entries)

    def lift(self, record: FenceRecord) -> None:
        self.entries -= set(record.rules)

    def ends(self, topics: Collection[str]) -> Offsets:
        return Offsets({(topic, 0): NextOffset(self.end) for topic in topics})

    def late_writes(self, ends: Offsets) -> str | None:
        earlier = ends["orders", 0]
        return None if earlier == self.end else f"records arrived on orders-0 ({earlier} to {self.end})"


class Killed(BaseException):
    """The process died."""


PHASES = ("hold", fence_phase.PHASE, fence_phase.ENDS_PHASE, "rollback")


def an_attempt(store: MemoryStore, number: int) -> CutoverJournal:
    journal = CutoverJournal(store, "job", "m1", PHASES, signer=SIGNER)
    journal.begin(lambda: number)
    return journal


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_what_a_fence_adds_stands_in_the_journal_before_it_is_added(store: MemoryStore):
    class DyingCluster(Cluster):
        def put(self, record: FenceRecord) -> None:
            super().put(record)
            raise Killed

    cluster = DyingCluster()
    with pytest.raises(Killed):
        raise_fence(an_attempt(store, 1), cluster, ["orders"])
    assert cluster.entries == {OURS, THEIRS}
    drop_fence(an_attempt(store, 2), cluster)
    assert cluster.entries == {THEIRS}


def test_a_later_attempt_puts_up_what_the_first_one_planned(store: MemoryStore):
    cluster = Cluster()
    raise_fence(an_attempt(store, 1), cluster, ["orders"])
    again = an_attempt(store, 2)
    raise_fence(again, cluster, ["orders"])  # which finds the first one's entries: they are ours all the same
    drop_fence(again, cluster)
    drop_fence(again, cluster)
    assert cluster.entries == {THEIRS}


def test_a_fence_that_was_never_raised_is_dropped_without_a_word(store: MemoryStore):
    cluster = Cluster(entries={OURS, THEIRS})
    drop_fence(an_attempt(store, 1), cluster)
    assert cluster.entries == {OURS, THEIRS}


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("rolled_back", [False, True])
def test_an_attempt_that_slept_leaves_no_fence_behind_one_that_went_back(
    store: MemoryStore, rolled_back: bool, answered: bool
):
    class SlowCluster(Cluster):
        def put(self, record: FenceRecord) -> None:
            later = an_attempt(store, 2)
            if rolled_back:
                later.close(later.open("rollback", {}), {"winner": 1})
            super().put(record)
            if not answered:
                raise ClusterUnreachableError("The cluster was expected to answer.", "Nothing.", "Wait.")

    cluster = SlowCluster()
    with pytest.raises(AttemptSupersededError):
        raise_fence(an_attempt(store, 1), cluster, ["orders"])
    assert (OURS in cluster.entries) is not rolled_back


def test_records_behind_the_noted_ends_are_refused_with_their_offsets(store: MemoryStore):
    cluster, journal = Cluster(), an_attempt(store, 1)
    raise_fence(journal, cluster, ["orders"])
    note_ends(journal, cluster, ["orders"])
    require_quiet(journal, cluster)
    cluster.end = 12
    assert note_ends(journal, cluster, ["orders"]) == {"ends": {"orders": {"0": 10}}}
    with refuses(LATE_WRITES, match=r"orders-0 \(10 to 12\)"):
        require_quiet(journal, cluster)
    assert "10 to 12" in (late_writes(journal, cluster) or "")


def test_a_fence_that_cannot_be_taken_down_says_that_producers_are_held(store: MemoryStore):
    class Unreachable(Cluster):
        up = False

        def lift(self, record: FenceRecord) -> None:
            if not self.up:
                raise ClusterUnreachableError("Cluster c was expected to answer.", "Nothing.", "Start it.")
            super().lift(record)

    cluster, journal = Unreachable(), an_attempt(store, 1)
    raise_fence(journal, cluster, ["orders"])
    with pytest.raises(FenceStandsError, match="producers are held") as found:
        drop_fence(journal, cluster)
    assert "Start it. Then clear this task" in found.value.remedy
    assert found.value.retryable, "brokers that are away come back, and producers are held meanwhile"
    cluster.up = True
    drop_fence(journal, cluster)
    assert cluster.entries == {THEIRS}


@pytest.mark.parametrize("stood", [False, True], ids=["our own", "somebody else's"])
def test_a_fence_that_somebody_took_down_is_refused(store: MemoryStore, stood: bool):
    cluster, journal = Cluster(), an_attempt(store, 1)
    if stood:
        cluster.entries.add(OURS)
    raise_fence(journal, cluster, ["orders"])
    note_ends(journal, cluster, ["orders"])
    cluster.entries.clear()
    with pytest.raises(FenceDownError, match="deny"):
        require_quiet(journal, cluster)


def test_without_noted_ends_nothing_is_a_late_write(store: MemoryStore):
    assert late_writes(an_attempt(store, 1), Cluster()) is None
