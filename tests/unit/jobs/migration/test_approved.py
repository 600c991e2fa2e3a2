"""The value of a migration goes through JSON and back; what is not one is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_flinkstyle.errors import MessageFormatError
from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.journal import CutoverJournal, read_phases
from airflow_flinkstyle.jobs.migration.approved import Approved, Migration
from airflow_flinkstyle.jobs.migration.cutover import PHASES
from airflow_flinkstyle.jobs.migration.preflight import Preflight, PreflightFinding
from airflow_flinkstyle.kafka.fence.fences import FenceTerms
from testbed.keys import SIGNER
from testbed.memory_store import MemoryStore
from tests.unit.jobs.migration.migrations import FULL, PLAIN


@pytest.mark.parametrize("moving", [PLAIN, FULL])
def test_everything_comes_back_from_a_journal_as_it_was(moving: Migration):
    approved = Approved(migration=moving, told={"job": "orders"}, source_cluster_id="c1")
    journal = CutoverJournal(MemoryStore(), "orders", "m1", PHASES, signer=SIGNER)
    assert journal.approved() is None
    journal.approve(approved.as_fields())
    found = Approved.from_fields(journal.approved() or {})
    assert (found, found.digest) == (approved, approved.digest)


def test_what_is_stored_first_stays_and_begins_nothing():
    store = MemoryStore()
    journal = CutoverJournal(store, "orders", "m1", PHASES, signer=SIGNER)
    first, second = (Approved(migration=one, told={}).as_fields() for one in (PLAIN, FULL))
    journal.approve(first)
    assert journal.approve(second) == json.loads(json.dumps(first))
    assert not journal.has_begun
    assert [phase.phase for phase in read_phases(store, "orders")["m1"]] == ["approved"]


@pytest.mark.parametrize("changed", [{"group": "g"}, {"rename": {"a": "b"}}, {"back": True}])
def test_digest_names_the_value_and_not_how_it_was_told(changed: dict[str, Any]):
    approved = Approved(migration=PLAIN, told={"start": "file:x"})
    assert replace(approved, told={"start": "file:y"}).digest == approved.digest
    assert replace(approved, migration=replace(PLAIN, **changed)).digest != approved.digest
    assert replace(approved, target_cluster_id="c2").digest != approved.digest


def test_every_answer_that_matters_is_shown():
    shown = Approved(migration=FULL, told={}, target_cluster_id="c2").as_markdown()
    for words in (
        "producers_first, repartitioned topics there too",
        "new_identity, starting at earliest; a.b: latest; c: group:g:1:missing=latest",
        "orders-3: savepoint:sp-1 (2 partitions, as read before the approval)",
        "exact,duplicate<=100,superseded,chosen",
        "old, new, renamed={'a': 'b'}, ignored_headers=('x', 'y'), sole_writer=True",
        "acl, principals=('User:a',), spare=('User:mirror',), open_topics=False",
        "a -> b,c",
        "watchers",
        "spark_b",
        "hold_timeout_s 7.5",
        "new (new:9092), cluster c2",
    ):
        assert words in shown


def test_both_clusters_are_asked_as_patiently_as_was_approved():
    moving = replace(PLAIN, settings=CutoverSettings(broker_timeout_s=7), fence=FenceTerms(kind="acl"))
    found = moving.on(old=moving.source.without_login(), new=moving.target.without_login())
    assert (found.old.patience_s, found.new.patience_s) == (7, 7)
    assert found.watch.fence.cluster.patience_s == 7


def test_other_answers_are_named_with_both_values():
    approved = Approved(migration=PLAIN, told={"fence": "passive", "way": "proved"})
    found = approved.differing({"fence": "acl", "way": "proved", "added": 1})
    assert found == {"added": "approved None, found 1", "fence": "approved 'passive', found 'acl'"}


@pytest.mark.parametrize(
    "spoilt",
    [
        {},
        {"format_version": 7},
        {"format_version": 1, "migration": {}, "told": {}},
        {"format_version": 1, "migration": {**PLAIN.as_fields(), "allow": "anything"}, "told": {}},
        {"format_version": 1, "migration": {**PLAIN.as_fields(), "height": 3}, "told": {}},
        {"format_version": 1, "migration": [], "told": {}},
    ],
)
def test_what_is_no_approved_migration_is_refused(spoilt: dict[str, Any]):
    with pytest.raises(MessageFormatError, match="approved migration of format 1"):
        Approved.from_fields(spoilt)


def test_what_is_shown_for_the_approval_is_text_and_never_markup():
    hostile = replace(FULL, group="<img src=x>", rename={"a|b": "*c*"}, spark_conn_id="[x](http://y)")
    shown = Approved(migration=hostile, told={}).as_markdown()
    assert r"\<img src=x>" in shown
    assert r"a\|b -> \*c\*" in shown
    assert r"\[x\](http://y)" in shown
    finding = PreflightFinding(
        check="mirror", level="ok", detail="<target alias>.offset.flush.interval.ms | 60 s"
    )
    row = Preflight(findings=(finding,)).as_markdown().splitlines()[-1]
    assert row == r"| mirror | ok | \<target alias>.offset.flush.interval.ms \| 60 s |"
