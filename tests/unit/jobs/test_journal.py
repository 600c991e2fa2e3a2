from __future__ import annotations

import pytest

from airflow_flinkstyle.errors import SignatureError
from airflow_flinkstyle.jobs.errors import AttemptSupersededError
from airflow_flinkstyle.jobs.journal import CutoverJournal, has_ended, read_phases
from airflow_flinkstyle.jobs.migration.producers import TokenCounter
from testbed.keys import SIGNER
from testbed.memory_store import MemoryStore


def a_journal(store: MemoryStore) -> CutoverJournal:
    return CutoverJournal(store, "job", "m1", ("hold", "stop"), signer=SIGNER)


def begun(store: MemoryStore) -> CutoverJournal:
    journal = a_journal(store)
    journal.begin(TokenCounter(store, "job").next)
    return journal


def test_each_attempt_has_a_higher_number_and_a_higher_token():
    store = MemoryStore()
    first, second = begun(store), begun(store)
    assert (first.token, second.token) == (1, 2)
    second.check()
    with pytest.raises(AttemptSupersededError):
        first.check()


def test_attempt_that_draws_its_token_while_another_begins_is_refused():
    store = MemoryStore()
    journal = a_journal(store)
    with pytest.raises(AttemptSupersededError):
        journal.begin(lambda: begun(store).token + 1)


def test_retry_keeps_intent_and_result_of_the_attempt_before():
    store = MemoryStore()
    first = begun(store)
    first.close(first.open("hold", {"by": "first"}), {"done": 1})
    first.open("stop", {"by": "first"})
    second = begun(store)
    assert second.open("hold", {"by": "second"}).record.result == {"done": 1}
    stop = second.open("stop", {"by": "second"})
    assert (stop.record.intent, stop.record.attempt, stop.record.result) == ({"by": "first"}, 2, None)
    assert sorted(info.key for info in store.list("job/migrations/m1/")) == [
        "job/migrations/m1/0-attempt.json",
        "job/migrations/m1/1-hold.json",
        "job/migrations/m1/2-stop.json",
    ]


def test_who_decided_is_kept_and_a_rejected_migration_has_ended():
    store = MemoryStore()
    journal = a_journal(store)
    assert journal.decided() is None
    journal.approve({"what": 1})
    journal.decide({"by": "ann", "choice": "Reject"}, approved=False)
    assert has_ended(read_phases(store, "job")["m1"])
    journal.decide({"by": "bob", "choice": "Approve"}, approved=True)  # somebody cleared the task
    assert journal.decided() == {"by": "bob", "choice": "Approve"}
    assert not has_ended(read_phases(store, "job")["m1"])
    key = "job/migrations/m1/0-decided.json"
    store.write(key, store.read(key).replace(b"bob", b"eve"))
    with pytest.raises(SignatureError):
        journal.decided()


def test_older_attempt_cannot_close_a_phase_that_a_newer_one_opened():
    store = MemoryStore()
    first = begun(store)
    phase = first.open("stop", {})
    begun(store).open("stop", {})
    with pytest.raises(AttemptSupersededError):
        first.close(phase, {"late": True})
    assert a_journal(store).result("stop") is None
