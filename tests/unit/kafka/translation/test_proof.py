"""The proof on sequences of fingerprints."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_flinkstyle.kafka.fingerprints import NO_KEY, Fingerprints, fingerprint, key_print
from airflow_flinkstyle.kafka.translation.alignment import Rules, Widen
from airflow_flinkstyle.kafka.translation.proof import Proof, aborted_among, needs_aborted, prove_position
from airflow_flinkstyle.kafka.verdict import Bounded, Exact, ExtraClass, Refused, Verdict
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    Logs = tuple[list[int], list[int], set[int], int]

IN_SYNC = Rules(caught_up=True)
EXHAUSTED = Rules(caught_up=True, exhausted=frozenset(("source", "target")))


@dataclass(frozen=True)
class Rec:
    content: int
    key: int = NO_KEY
    tombstone: bool = False


def fingerprints_of(
    records: Iterable[int | Rec],
    *,
    start: int = 0,
    gaps: Collection[int] = (),
    high: int | None = None,
    log_start: int | None = None,
) -> Fingerprints:
    """Records at consecutive offsets from ``start``; before the records at ``gaps`` one is left out."""
    fingerprints = Fingerprints(low=start, high=0, log_start=start if log_start is None else log_start)
    offset = start
    for index, record in enumerate(records):
        offset += index in gaps
        rec = record if isinstance(record, Rec) else Rec(record)
        fingerprints.add(offset, rec.content, rec.key, tombstone=rec.tombstone)
        offset += 1
    fingerprints.high = offset if high is None else high
    return fingerprints


def proved(source: Fingerprints, target: Fingerprints, position: int, rules: Rules = IN_SYNC) -> Proof:
    outcome = prove_position(source, target, position, rules)
    assert isinstance(outcome, Proof)
    return outcome


def reason(source: Fingerprints, target: Fingerprints, position: int, rules: Rules = IN_SYNC) -> str:
    verdict = proved(source, target, position, rules).verdict
    assert isinstance(verdict, Refused)
    return verdict.reason


def test_shifted_log_is_exact_at_the_shifted_offset():
    records = range(1, 51)
    proof = proved(fingerprints_of(records, start=1000), fingerprints_of(records, start=900), 1040)
    assert proof.verdict == Exact(940)
    assert (proof.unread, proof.matched, proof.context) == (10, 10, 40)


def test_proof_keeps_what_it_rests_on_though_it_refuses():
    source = fingerprints_of(range(1, 21))
    digest = sha256(source.prints[10:].tobytes()).hexdigest()
    proof = proved(source, fingerprints_of([*range(1, 21), 901, *range(15, 21)]), 10)
    assert (proof.unread, proof.matched, proof.context, proof.digest) == (10, 10, 10, digest)
    assert (proof.extras, proof.absent) == ({"duplicate": 6, "new": 1}, {})
    proof = proved(source, fingerprints_of(range(1, 18)), 10)
    assert (proof.unread, proof.matched, proof.context, proof.digest) == (10, 7, 0, digest)
    assert (proof.extras, proof.absent) == ({}, {})


def test_transaction_markers_between_records_do_not_disturb():
    source = fingerprints_of(range(1, 21), gaps={3, 11, 15})
    target = fingerprints_of(range(1, 21), gaps={15}, start=500)
    assert proved(source, target, source.offsets[10]).verdict == Exact(target.offsets[10])


def test_position_on_a_marker_means_the_next_record():
    source = fingerprints_of(range(1, 21), gaps={10})
    assert proved(source, fingerprints_of(range(1, 21)), source.offsets[10] - 1).verdict == Exact(10)


def test_log_end_is_the_target_end_even_behind_a_marker():
    target = fingerprints_of(range(1, 21), high=25)
    assert proved(fingerprints_of(range(1, 21)), target, 20).verdict == Exact(25)


def test_log_end_is_refused_if_the_newest_records_differ():
    verdict = proved(fingerprints_of(range(1, 21)), fingerprints_of([*range(1, 20), 99]), 20).verdict
    assert isinstance(verdict, Refused)
    assert "differ" in verdict.reason


def test_log_end_is_looked_for_in_more_of_the_target_before_it_is_refused():
    source, target = (
        fingerprints_of(range(1, 21)),
        fingerprints_of([*range(11, 20), 99], start=30, log_start=0),
    )
    assert prove_position(source, target, 20, IN_SYNC) == Widen(side="target")
    assert "differ" in reason(source, target, 20, EXHAUSTED)


def test_log_end_ignores_second_copies_of_read_records():
    target = fingerprints_of([*range(1, 21), 18, 19, 20])
    assert proved(fingerprints_of(range(1, 21)), target, 20).verdict == Exact(23)


def test_log_end_is_refused_if_nothing_says_the_mirror_is_in_sync():
    verdict = proved(fingerprints_of(range(1, 21)), fingerprints_of(range(1, 21)), 20, Rules()).verdict
    assert isinstance(verdict, Refused)
    assert "in sync" in verdict.reason


def test_empty_and_emptied_partitions_are_exact():
    assert proved(fingerprints_of([], start=50), fingerprints_of([]), 50).verdict == Exact(0)


def test_missing_records_are_refused_with_their_source_range():
    verdict = proved(fingerprints_of(range(1, 21)), fingerprints_of(range(1, 18)), 10).verdict
    assert isinstance(verdict, Refused)
    assert verdict.source_range == (17, 20)


@pytest.mark.parametrize(
    ("source", "target", "position", "missing"),
    [
        (range(1, 21), [], 0, (0, 20)),
        (range(1, 21), range(11, 21), 5, (5, 10)),
        (range(101, 121), [*range(1, 16), *range(116, 121)], 3, (3, 15)),
    ],
    ids=["recreated target", "recreated target, new records", "recreated source"],
)
def test_mirror_that_passed_over_records_and_calls_itself_in_sync_is_not_believed(
    source: Iterable[int], target: Iterable[int], position: int, missing: tuple[int, int]
):
    """As people reported: MirrorMaker 2 goes on where it was in another incarnation of a topic.

    https://github.com/strimzi/strimzi-kafka-operator/issues/3375 (the target's was deleted), and
    https://github.com/apache/kafka/pull/22248 (the source's was).
    """
    verdict = proved(fingerprints_of(source), fingerprints_of(target), position, EXHAUSTED).verdict
    assert isinstance(verdict, Refused)
    assert verdict.source_range == missing


def test_records_in_another_order_are_refused():
    verdict = proved(fingerprints_of([1, 2, 3, 4]), fingerprints_of([1, 2, 4, 3]), 2).verdict
    assert isinstance(verdict, Refused)
    assert "order" in verdict.reason


def test_second_copies_of_unread_records_are_counted():
    target = fingerprints_of([1, 2, 3, 4, 5, 4, 5])
    proof = proved(fingerprints_of([1, 2, 3, 4, 5]), target, 2)
    assert proof.verdict == Bounded(2, {"duplicate": 2})


def test_a_repetition_at_the_end_is_read_once_from_the_last_copy():
    target = fingerprints_of([1, 2, 3, 4, 3, 4])
    assert proved(fingerprints_of([1, 2, 3, 4]), target, 2).verdict == Exact(4)


def test_records_nobody_mirrored_are_named_foreign_and_aborted_ones_phantoms():
    source, target = fingerprints_of([1, 2, 3, 4]), fingerprints_of([1, 2, 3, 99, 4])
    assert proved(source, target, 2).verdict == Bounded(2, {"new": 1})
    known = Rules(caught_up=True, aborted=frozenset({99}))
    assert proved(source, target, 2, known).verdict == Bounded(2, {"phantom_aborted": 1})


def test_a_window_that_is_too_short_is_widened_not_refused():
    source = fingerprints_of(range(1, 21))
    newest = fingerprints_of(range(15, 21), start=14, log_start=0)
    assert prove_position(source, newest, 10, IN_SYNC) == Widen(side="target")
    assert isinstance(prove_position(source, fingerprints_of(range(1, 21)), 10, IN_SYNC), Proof)


def test_compaction_may_remove_older_versions_of_a_key():
    source = fingerprints_of([Rec(1, 7), Rec(2, 8), Rec(3, 7)])
    target = fingerprints_of([Rec(2, 8), Rec(3, 7)], start=1)
    proof = proved(source, target, 0, Rules(caught_up=True, compacted=True))
    assert proof.verdict == Bounded(1, {}, {"superseded": 1})
    assert isinstance(proved(source, target, 0).verdict, Refused)  # not compacted: it is a loss


def test_proof_keeps_what_compaction_removed():
    source = fingerprints_of([Rec(1, 7), Rec(2, 8), Rec(3, 7)])
    proof = proved(source, fingerprints_of([Rec(2, 8), Rec(3, 7)]), 0, Rules(caught_up=True, compacted=True))
    assert proof.absent == {"superseded": 1}


def test_compaction_may_not_remove_the_newest_version():
    source = fingerprints_of([Rec(1, 7), Rec(2, 8), Rec(3, 7)])
    target = fingerprints_of([Rec(1, 7), Rec(2, 8)])
    assert isinstance(proved(source, target, 0, Rules(caught_up=True, compacted=True)).verdict, Refused)


def test_lost_deletions_are_classed_apart():
    source = fingerprints_of([Rec(1, 7), Rec(2, 7, tombstone=True), Rec(3, 8)])
    target = fingerprints_of([Rec(3, 8)], start=2)
    lost = proved(source, target, 1, Rules(caught_up=True, compacted=True)).verdict
    assert lost == Bounded(2, {}, {"tombstone": 1})


def test_identical_records_are_refused_without_the_mirrors_word():
    """The attack: the mirror stopped 7 short, and content alone would say exact."""
    source, target = fingerprints_of([5] * 100), fingerprints_of([5] * 93)
    verdict = proved(source, target, 90, Rules()).verdict
    assert isinstance(verdict, Refused)
    assert "repeat" in verdict.reason


@pytest.mark.parametrize("sole_writer", [True, False])
def test_identical_records_of_which_the_target_has_fewer_are_refused_whatever_the_mirror_says(
    sole_writer: bool,
):
    rules = Rules(caught_up=True, sole_writer=sole_writer)
    refused = proved(fingerprints_of([9, *[5] * 99]), fingerprints_of([9, *[5] * 92]), 90, rules).verdict
    assert isinstance(refused, Refused)
    assert "fewer on the target" in refused.reason


@pytest.mark.parametrize("period", [3, 50, 90])
def test_periodic_records_are_refused_without_the_mirrors_word(period: int):
    """The attack: the mirror stopped whole periods short, and the range is shorter than a period."""
    source = fingerprints_of([i % period for i in range(900, 1000)], start=900, log_start=0)
    target = fingerprints_of([i % period for i in range(900, 1000)], start=800, log_start=0)
    assert prove_position(source, target, 980, Rules(oldest_copy=800)) == Widen(side="source")
    limited = Rules(oldest_copy=800, exhausted=frozenset(("source", "target")))
    assert isinstance(proved(source, target, 980, limited).verdict, Refused)
    whole = fingerprints_of([i % period for i in range(1000)])
    short = fingerprints_of([i % period for i in range(1000 - 2 * period)])
    refused = proved(whole, short, 980, Rules()).verdict
    assert isinstance(refused, Refused)
    assert "repeat" in refused.reason


def test_newest_record_that_comes_twice_shows_nothing_for_the_mirror():
    """The attack: the mirror stopped before it, after it had repeated what is equal."""
    source, target = fingerprints_of([9, *[5] * 8]), fingerprints_of([9, *[5] * 7, 5])
    refused = proved(source, target, 8, Rules()).verdict
    assert isinstance(refused, Refused)
    assert "repeat" in refused.reason
    assert proved(source, target, 8, IN_SYNC).verdict == Exact(8)


def test_deleted_records_may_equal_undated_ones():
    """The attack: the mirror stopped four short, and what it had copied from a deleted head ends alike."""
    source = fingerprints_of([*range(10, 61), *range(1, 10)], start=9)
    target = fingerprints_of([*range(1, 61), *range(1, 6)])
    refused = proved(source, target, 68, Rules(dated=False)).verdict
    assert isinstance(refused, Refused)
    assert "deleted" in refused.reason


def test_new_records_are_read_though_the_target_has_deleted_what_was_read():
    source, target = fingerprints_of([1, 2]), fingerprints_of([777, 2], start=1)
    assert proved(source, target, 1).verdict == Bounded(1, {"new": 1})


def test_new_records_before_the_first_record_ever_are_read_from_a_target_that_deletes():
    assert proved(fingerprints_of([1]), fingerprints_of([777, 1], start=1), 0).verdict == Bounded(
        1, {"new": 1}
    )


def test_unread_records_with_nothing_read_in_sight_are_refused_but_for_a_sole_writer():
    source, target = (
        fingerprints_of(range(1, 21)),
        fingerprints_of([*range(901, 941), *range(11, 21)], start=50, log_start=0),
    )
    limited = Rules(caught_up=True, exhausted=frozenset(("source", "target")))
    refused = proved(source, target, 10, limited).verdict
    assert isinstance(refused, Refused)
    assert "no record that was read" in refused.reason
    assert proved(source, target, 10, replace(limited, sole_writer=True)).verdict == Exact(90)


def test_older_records_cannot_equal_the_newest_if_their_time_is_another():
    records = range(901, 1001)
    source = fingerprints_of(records, start=900, log_start=0)
    target = fingerprints_of(records, start=800, log_start=0)
    assert prove_position(source, target, 980, Rules(oldest_equal=899, oldest_copy=800)) == Widen(
        side="source"
    )
    assert proved(source, target, 980, Rules(oldest_equal=900, oldest_copy=800)).verdict == Exact(880)


def test_first_copies_are_looked_for_before_the_window_unless_only_the_mirror_writes():
    """The attack: new records stand between the first copies and the second ones, which fill the range."""
    records = range(1, 41)
    source, second = fingerprints_of(records), fingerprints_of(records, start=50, log_start=0)
    for oldest_copy in (0, 49):
        assert prove_position(source, second, 40, replace(IN_SYNC, oldest_copy=oldest_copy)) == Widen(
            side="target"
        )
    assert proved(source, second, 40, replace(IN_SYNC, oldest_copy=50)).verdict == Exact(90)
    assert proved(source, second, 40, replace(IN_SYNC, sole_writer=True)).verdict == Exact(90)
    for rules in (replace(IN_SYNC, oldest_copy=None), replace(IN_SYNC, exhausted=frozenset(("target",)))):
        refused = proved(source, second, 40, rules).verdict
        assert isinstance(refused, Refused)
        assert "new ones of others between" in refused.reason
    whole = fingerprints_of([*records, *range(901, 911), *records])
    assert proved(source, whole, 40).verdict == Bounded(40, {"new": 10, "copy_before": 40})


def test_new_records_behind_the_log_end_are_read_not_skipped():
    target = fingerprints_of([*range(1, 21), 777, 778])
    assert proved(fingerprints_of(range(1, 21)), target, 20).verdict == Bounded(20, {"new": 2})


def test_new_records_between_read_and_unread_ones_are_read_and_earlier_ones_are_told():
    source, target = (
        fingerprints_of(range(1, 21)),
        fingerprints_of([*range(1, 9), 776, 9, 10, 777, *range(11, 21)]),
    )
    assert proved(source, target, 10).verdict == Bounded(11, {"new": 1, "passed_over": 1})


def test_emptied_source_leaves_open_whose_the_targets_records_are():
    source, target = fingerprints_of([], start=50), fingerprints_of(range(1, 51))
    refused = proved(source, target, 50).verdict
    assert isinstance(refused, Refused)
    assert "sole_writer" in refused.reason
    assert proved(source, target, 50, Rules(caught_up=True, sole_writer=True)).verdict == Exact(50)


def test_what_others_wrote_to_a_topic_never_mirrored_is_new():
    assert proved(fingerprints_of([]), fingerprints_of([5, 6]), 0).verdict == Bounded(0, {"new": 2})


def test_deletion_is_missing_if_what_it_deletes_is_still_there():
    source = fingerprints_of([Rec(1, 7), Rec(2, 7, tombstone=True), Rec(3, 8)])
    target = fingerprints_of([Rec(1, 7), Rec(3, 8)])
    assert isinstance(proved(source, target, 1, Rules(caught_up=True, compacted=True)).verdict, Refused)


def test_versions_that_only_the_source_compacted_away_are_superseded_not_new():
    source = fingerprints_of([Rec(2, 8), Rec(3, 7)], start=1)
    target = fingerprints_of([Rec(9, 9), Rec(2, 8), Rec(1, 7), Rec(3, 7)])
    rules = Rules(caught_up=True, source_compacted=True)
    assert proved(source, target, 2, rules).verdict == Exact(3)
    assert proved(source, target, 1, rules).verdict == Bounded(1, {"superseded": 1})


def test_unique_records_are_proved_without_the_mirrors_word():
    records = range(1, 101)
    assert proved(fingerprints_of(records, start=30), fingerprints_of(records), 80, Rules()).verdict == Exact(
        50
    )


def test_preview_ignores_what_arrives_later():
    source, target = fingerprints_of(range(1, 21)), fingerprints_of(range(1, 30), start=100)
    growing = Rules(growing=True)
    assert proved(source, target, 15, growing).verdict == Exact(115)
    assert proved(source, target, 20, growing).verdict == Exact(120)


@pytest.mark.parametrize("part", range(4))
def test_fingerprint_depends_on_every_part(part: int):
    base = [b"k", b"v", [("h", b"x")], 5]
    other = [b"K", b"V", [("h", None)], 6]
    changed = [*base[:part], other[part], *base[part + 1 :]]
    assert fingerprint(*base) != fingerprint(*changed)


def test_fingerprint_tells_where_one_part_ends():
    assert fingerprint(b"ab", b"c", (), 0) != fingerprint(b"a", b"bc", (), 0)
    assert fingerprint(None, b"", (), 0) != fingerprint(b"", None, (), 0)
    assert key_print(None) != key_print(b"")


@st.composite
def mirrored_logs(draw: st.DrawFn):
    """A source log, what a mirror made of it (duplicated, dropped, cut short, shifted), a position."""
    records = draw(st.lists(st.integers(1, draw(st.sampled_from([3, 8, 10_000]))), max_size=60))
    copy = list(records)
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["repeat", "drop", "head", "foreign"]))
        at = draw(st.integers(0, max(0, len(copy) - 1)))
        length = draw(st.integers(1, 8))
        if kind == "repeat":
            copy[at + length : at + length] = copy[at : at + length]
        elif kind == "drop":
            del copy[at : at + length]
        elif kind == "head":
            del copy[:length]
        else:
            copy.insert(at, 1_000_000)
    gaps = draw(st.sets(st.integers(0, 60), max_size=5))
    position = draw(st.integers(0, len(records)))
    return records, copy, gaps, position


@settings(max_examples=1500, deadline=None)
@given(mirrored_logs(), st.integers(0, 500))
def test_exact_means_equal_and_bounded_loses_nothing(logs: Logs, shift: int):
    records, copy, gaps, at = logs
    source, target = fingerprints_of(records, gaps=gaps), fingerprints_of(copy, start=shift)
    position = source.offsets[at] if at < len(records) else source.high
    verdict = proved(source, target, position).verdict
    unread = records[at:]
    if isinstance(verdict, Refused):
        return
    reads = [p for offset, p in zip(target.offsets, target.prints, strict=True) if offset >= verdict.offset]
    if isinstance(verdict, Exact):
        assert reads == unread
    else:
        remaining = iter(reads)
        assert all(record in remaining for record in unread)  # in order, nothing lost
        passed = verdict.extras.get("passed_over", 0)
        assert len(reads) - len(unread) == sum(verdict.extras.values()) - passed


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_compaction_never_loses_the_newest_value_of_a_key(data: st.DataObject):
    log = [
        Rec(i + 1, data.draw(st.integers(1, 5)), tombstone=data.draw(st.booleans()))
        for i in range(data.draw(st.integers(0, 30)))
    ]
    cleaned = [
        rec
        for i, rec in enumerate(log)
        if all(later.key != rec.key for later in log[i + 1 :]) or data.draw(st.booleans())
    ]
    gone = data.draw(st.integers(0, 1)) and [rec for rec in cleaned if not rec.tombstone]
    target = fingerprints_of(gone or cleaned)
    at = data.draw(st.integers(0, len(log)))
    verdict = proved(fingerprints_of(log), target, at, Rules(caught_up=True, compacted=True)).verdict
    if isinstance(verdict, Refused):
        return
    newest = {rec.key: rec for rec in log[at:]}
    read = {
        key: p
        for offset, p, key in zip(target.offsets, target.prints, target.keys, strict=True)
        if offset >= verdict.offset
    }
    lost = [rec for key, rec in newest.items() if read.get(key) != rec.content]
    announced = verdict.absent.get("tombstone", 0) if isinstance(verdict, Bounded) else 0
    assert all(rec.tombstone and rec.key not in read for rec in lost)
    assert len(lost) <= announced
    assert not Counter(read) - Counter({rec.key: rec.content for rec in log})


def a_hole_then_a_repetition(hole: int) -> list[int]:
    """The mirror comes to the 61st of 80 records without one, others write 4, it begins again at the 4th."""
    return [*(i for i in range(1, 62) if i != hole), 901, 902, 903, 904, *range(4, 81)]


@pytest.mark.parametrize("hole", [17, 30, 48])
@pytest.mark.parametrize("dated", [True, False])
def test_records_of_others_behind_a_pass_that_lacks_one_are_read(hole: int, dated: bool):
    target = fingerprints_of(a_hole_then_a_repetition(hole))
    for low in (0, 16):
        source = fingerprints_of(range(low + 1, 81), start=low, log_start=0)
        rules = replace(IN_SYNC, dated=dated)
        outcome = prove_position(source, target, 48, rules)
        if isinstance(outcome, Widen):
            assert low
            continue
        assert isinstance(outcome.verdict, Bounded)
        assert outcome.verdict.extras["new"] == 4
        assert outcome.verdict.offset <= 60
        assert "passed_over" not in outcome.verdict.extras


def test_position_behind_nothing_but_aborted_records_is_refused_while_older_ones_may_be_read():
    """Only if no more of the source may be read: others may have written before the unread records."""
    source = fingerprints_of(range(21, 31), start=30, log_start=0)
    source.low = 10
    target = fingerprints_of([*range(1, 21), 901, *range(21, 31)])
    limited = Rules(caught_up=True, exhausted=frozenset(("source",)))
    refused = proved(source, target, 30, limited).verdict
    assert isinstance(refused, Refused)
    assert "no record that was read is among the 30 newest" in refused.reason
    assert proved(source, target, 30, replace(limited, sole_writer=True)).verdict == Exact(21)


@pytest.mark.parametrize("dated", [True, False])
def test_copies_of_aborted_records_without_a_time_may_be_records_of_others(dated: bool):
    source = fingerprints_of([*range(1, 21), *range(31, 41)])
    target = fingerprints_of([*range(1, 21), 25, 26, *range(31, 41)])
    verdict = proved(
        source, target, 20, Rules(caught_up=True, dated=dated, aborted=frozenset({25, 26}))
    ).verdict
    assert verdict == (Exact(22) if dated else Bounded(20, {"phantom_aborted": 2}))


def test_equal_records_from_before_the_window_are_looked_for_before_they_move_the_position():
    """Without timestamps what was unread may equal older records: one clean pass is still exact."""
    values = [i % 9 for i in range(22)]
    short, whole = fingerprints_of(values[8:], start=8, log_start=0), fingerprints_of(values)
    rules = replace(IN_SYNC, dated=False)
    assert prove_position(short, whole, 16, rules) == Widen(side="source")
    assert proved(whole, whole, 16, rules).verdict == Exact(16)


def test_newest_record_that_equals_an_aborted_one_shows_nothing_for_the_mirror():
    """The attack: a transaction was tried again, and the mirror copied its aborted try and stopped."""
    source = fingerprints_of([*range(1, 21), 30], gaps={20})
    target = fingerprints_of([*range(1, 21), 30])
    first = proved(source, target, 20, Rules())
    assert first.verdict == Exact(20)
    everything = fingerprints_of([*range(1, 21), 30, 30])
    assert needs_aborted(first, source, Rules())
    assert not needs_aborted(first, source, IN_SYNC)
    assert not needs_aborted(first, source, Rules(growing=True))
    assert not needs_aborted(replace(first, verdict=Refused("for another reason", None)), source, Rules())
    for start in (0, 100):
        nothing_hidden = fingerprints_of([*range(1, 21), 30], start=start)
        assert not needs_aborted(first, nothing_hidden, Rules())
    assert aborted_among(everything, source) == {30}
    refused = proved(source, target, 20, Rules(aborted=aborted_among(everything, source))).verdict
    assert isinstance(refused, Refused)
    assert "repeat" in refused.reason


@pytest.mark.parametrize("named", ["new", "passed_over"])
def test_aborted_records_are_asked_for_where_one_of_them_may_be_what_only_the_target_holds(named: ExtraClass):
    source = fingerprints_of(range(1, 21))
    proof = proved(source, source, 10)
    assert not needs_aborted(proof, source, IN_SYNC)
    assert needs_aborted(replace(proof, extras={named: 1}), source, IN_SYNC)


def test_records_of_others_among_the_unread_are_told_once_no_older_originals_can_be_read():
    source = fingerprints_of(range(31, 61), start=30, log_start=0)
    target = fingerprints_of([*range(31, 50), 901, *range(50, 61)])
    assert prove_position(source, target, 45, IN_SYNC) == Widen(side="source")
    assert proved(source, target, 45, EXHAUSTED).verdict == Bounded(15, {"new": 1})


def test_preview_tells_records_of_others_among_the_unread_and_not_behind_them():
    source, target = fingerprints_of(range(1, 21)), fingerprints_of([*range(1, 16), 901, *range(16, 21), 50])
    assert proved(source, target, 10, Rules(growing=True)).verdict == Bounded(10, {"new": 1})


@pytest.mark.parametrize(("deleted", "named"), [(0, "new"), (1, "copy_before"), (30, "copy_before")])
def test_sole_writers_record_that_is_not_on_the_source_is_a_copy_of_a_deleted_one_if_any_is_deleted(
    deleted: int, named: ExtraClass
):
    source, target = (
        fingerprints_of(range(1, 21), start=deleted),
        fingerprints_of([*range(1, 11), 901, *range(11, 21)]),
    )
    rules = replace(IN_SYNC, sole_writer=True)
    assert proved(source, target, deleted + 5, rules).verdict == Bounded(5, {named: 1})


def test_undated_record_that_a_pass_has_in_the_place_of_the_newest_read_one_may_be_another_producers():
    source = fingerprints_of(range(1, 21))
    target = fingerprints_of([*range(1, 10), 11, 901, *range(1, 21)])
    found = proved(source, target, 10, replace(IN_SYNC, dated=False)).verdict
    assert found == Bounded(9, {"duplicate": 1, "new": 1, "copy_before": 10})


def test_log_end_behind_nothing_but_removed_deletions_is_refused():
    source = fingerprints_of([Rec(1, 7, tombstone=True), Rec(2, 8, tombstone=True)])
    assert "differ" in reason(
        source, fingerprints_of([Rec(901, 9)]), 1, Rules(caught_up=True, compacted=True)
    )


def test_log_that_was_mirrored_twice_is_followed_from_records_that_the_source_holds_once():
    values = [1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    source, target = fingerprints_of(values, start=10), fingerprints_of([*values, *values], start=20)
    assert proved(source, target, 18).verdict == Bounded(32, {"copy_before": 7}), "the first that repeats"


def test_undated_log_that_was_mirrored_twice_is_followed_if_no_record_repeats():
    source, target = (
        fingerprints_of(range(1, 12), start=10),
        fingerprints_of([*range(1, 12), *range(1, 12)], start=20),
    )
    found = proved(source, target, 18, replace(IN_SYNC, dated=False)).verdict
    assert found == Bounded(28, {"duplicate": 3, "copy_before": 8})


def test_records_that_repeat_are_followed_from_the_first_one_ever_written():
    values = [1] * 8 + [2]
    assert proved(fingerprints_of(values), fingerprints_of(values), 4).verdict == Exact(4)


def test_records_that_are_fewer_on_the_target_do_not_count_behind_a_record_that_is_there_once():
    source = fingerprints_of([1, 7, 7, 2, 3, 4])
    assert proved(source, fingerprints_of([1, 7, 2, 3, 4]), 4).verdict == Exact(3)
    assert "fewer" in reason(source, fingerprints_of([1, 7, 2, 2, 3, 4]), 4)
    before = fingerprints_of([7, 7, 2, 3, 4])
    assert proved(before, fingerprints_of([7, 2, 2, 3, 4]), 3).verdict == Exact(3), (
        "which are there is not told"
    )


def test_sole_writers_strange_record_right_behind_the_newest_read_one_is_read():
    source, target = fingerprints_of(range(1, 21)), fingerprints_of([*range(1, 11), 901, *range(11, 21)])
    assert proved(source, target, 10, replace(IN_SYNC, sole_writer=True)).verdict == Bounded(10, {"new": 1})


@pytest.mark.parametrize(
    ("source", "target", "verdict"),
    [
        ([], [], Exact(NextOffset(30))),
        ([], [901], Bounded(NextOffset(30), {"new": 1})),
        ([1, 2], [1, 2], Exact(NextOffset(30))),
    ],
)
def test_more_of_the_target_is_read_where_nothing_was_ever_read(
    source: list[int], target: list[int], verdict: Verdict
):
    logs = fingerprints_of(source), fingerprints_of(target, start=30, log_start=0)
    for sole in (True, False):
        assert prove_position(*logs, 0, replace(IN_SYNC, sole_writer=sole)) == Widen(side="target")
    assert proved(*logs, 0, replace(EXHAUSTED, sole_writer=True)).verdict == verdict


def test_copies_of_unread_records_are_no_trace_of_those_that_were_read():
    source, target = fingerprints_of(range(1, 11)), fingerprints_of([9, 10, 901, 9, 10], start=5)
    rules = replace(IN_SYNC, sole_writer=True)
    assert proved(source, target, 8, rules).verdict == Bounded(7, {"new": 1})


def test_deleted_records_may_equal_the_newest_if_none_that_is_left_is_older():
    source, target = fingerprints_of(range(1, 21), start=30), fingerprints_of(range(1, 21))
    assert proved(source, target, 40, Rules(oldest_equal=31)).verdict == Exact(10)
    refused = proved(source, target, 40, Rules(oldest_equal=30)).verdict
    assert isinstance(refused, Refused)
    assert "deleted records may be as new" in refused.reason


FIVES = [5] * 20
OTHER_WRITERS = "if only the mirror writes there, set sole_writer"
NOT_SHOWN = "content cannot show that the mirror is in sync"


@pytest.mark.parametrize(
    ("source", "target", "position", "rules", "expected"),
    [
        (
            fingerprints_of(range(1, 21)),
            fingerprints_of([*range(1, 20), 99]),
            20,
            IN_SYNC,
            "the position is at the log's end, but the newest records of the two logs differ",
        ),
        (
            fingerprints_of(FIVES),
            fingerprints_of(FIVES[:-1]),
            18,
            IN_SYNC,
            "records that repeat are fewer on the target than on the source: some are not mirrored",
        ),
        (
            fingerprints_of(range(1, 41)),
            fingerprints_of(range(1, 41), start=50, log_start=0),
            40,
            replace(IN_SYNC, oldest_copy=None),
            "records that were read may be on the target before the newest 40 too, with new ones of "
            f"others between; {OTHER_WRITERS}",
        ),
        (
            fingerprints_of(range(1, 21)),
            fingerprints_of(range(11, 21), start=50, log_start=0),
            10,
            EXHAUSTED,
            "no record that was read is among the newest 10 on the target",
        ),
        (
            fingerprints_of([], start=50),
            fingerprints_of(range(1, 51)),
            50,
            IN_SYNC,
            "the source holds no record any more, so nothing tells whether those of the target are copies of "
            f"deleted ones or new records of others; {OTHER_WRITERS}",
        ),
        (
            fingerprints_of(range(1, 21), start=50, log_start=0),
            fingerprints_of(range(1, 21)),
            50,
            EXHAUSTED,
            "no record that was read is among the 20 newest offsets of the source",
        ),
        (
            fingerprints_of(FIVES),
            fingerprints_of(FIVES, start=50, log_start=0),
            10,
            EXHAUSTED,
            "the records repeat or carry no time of their own, so copies cannot be told from records that "
            f"others wrote to the target; {OTHER_WRITERS}",
        ),
        (
            fingerprints_of(range(1, 21)),
            fingerprints_of(range(1, 21)),
            20,
            Rules(),
            "the position is at the log's end, and nothing proves that the mirror is in sync",
        ),
        (
            fingerprints_of(range(1, 21)),
            fingerprints_of(range(1, 21)),
            7,
            Rules(),
            "too few records before the position are equal, and nothing proves that the mirror is in sync",
        ),
        (
            fingerprints_of(range(2, 21), start=1),
            fingerprints_of(range(1, 21)),
            10,
            Rules(dated=False),
            f"the records carry no time of their own, and deleted ones may equal the newest, so {NOT_SHOWN}",
        ),
        (
            fingerprints_of(range(1, 21), start=50, log_start=0),
            fingerprints_of(range(1, 21)),
            60,
            Rules(oldest_equal=49, exhausted=frozenset(("source",))),
            f"older records may equal the newest one, so {NOT_SHOWN}",
        ),
        (
            fingerprints_of(range(2, 21), start=1),
            fingerprints_of(range(1, 21)),
            10,
            Rules(oldest_equal=1),
            f"deleted records may be as new as the newest one and equal it, so {NOT_SHOWN}",
        ),
        (
            fingerprints_of([30, *range(1, 20), 30]),
            fingerprints_of([30, *range(1, 20), 30]),
            15,
            Rules(),
            f"the newest records repeat, so {NOT_SHOWN}",
        ),
        (
            fingerprints_of([1, 2, 3, 4]),
            fingerprints_of([1, 2, 4, 3]),
            2,
            IN_SYNC,
            "1 unread records are in another order on the target",
        ),
        (
            fingerprints_of(range(1, 21)),
            fingerprints_of(range(15, 21), start=50, log_start=0),
            10,
            EXHAUSTED,
            "4 unread records are not among the newest 6 on the target",
        ),
        (
            fingerprints_of(range(1, 21)),
            fingerprints_of(range(1, 18)),
            10,
            IN_SYNC,
            "3 unread records are not on the target",
        ),
    ],
)
def test_each_refusal_says_why(
    source: Fingerprints, target: Fingerprints, position: int, rules: Rules, expected: str
):
    assert reason(source, target, position, rules) == expected


def test_mirror_is_level_by_content_from_8_equal_records_on_if_the_newest_stands_nowhere_else():
    whole = fingerprints_of(range(1, 21))
    for rules in (Rules(), Rules(dated=False), Rules(oldest_equal=0)):
        assert proved(whole, whole, 8, rules).verdict == Exact(8)
    newer, target = fingerprints_of(range(13, 31), start=12, log_start=0), fingerprints_of(range(1, 31))
    assert proved(newer, target, 20).verdict == Exact(20)
    assert prove_position(newer, target, 19, IN_SYNC) == Widen(side="source")


def test_shorter_window_is_made_longer_first():
    source = fingerprints_of([5] * 100, start=900, log_start=0)
    for length, side in ((50, "target"), (100, "source"), (150, "source")):
        target = fingerprints_of([5] * length, start=1000 - length, log_start=0)
        assert prove_position(source, target, 980, IN_SYNC) == Widen(side=side)


def test_compacted_target_may_hold_fewer_of_the_records_that_repeat():
    source = fingerprints_of([Rec(5, 7), Rec(5, 7), Rec(5, 7), Rec(9, 8)])
    target = fingerprints_of([Rec(5, 7), Rec(9, 8)])
    assert proved(source, target, 3, Rules(caught_up=True, compacted=True)).verdict == Exact(1)
    assert "fewer on the target" in reason(source, target, 3)


def test_log_end_behind_a_deletion_that_compaction_removed_is_that_of_the_record_before():
    source = fingerprints_of([Rec(1, 7), Rec(2, 8, tombstone=True)])
    compacted = Rules(caught_up=True, compacted=True)
    target = fingerprints_of([Rec(1, 7), Rec(901, 9)])
    assert proved(source, target, 2, compacted).verdict == Bounded(1, {"new": 1})
    assert "differ" in reason(source, target, 2), "nothing is removed from a log that is not compacted"
    kept = fingerprints_of([Rec(1, 7), Rec(2, 8)])
    assert "differ" in reason(kept, target, 2, compacted), "only deletions are removed"


def test_records_of_others_behind_a_first_copy_are_read_though_all_that_was_read_is_deleted():
    source = fingerprints_of([10, 11], start=9)
    assert proved(source, fingerprints_of([10, 901, 10, 11]), 9).verdict == Bounded(1, {"new": 1})
    for dated in (True, False):
        assert proved(source, fingerprints_of([10, 11]), 9, replace(IN_SYNC, dated=dated)).verdict == Exact(0)


@pytest.mark.parametrize("dated", [True, False])
def test_position_behind_the_first_record_ever_is_exact(dated: bool):
    whole = fingerprints_of([1, 2, 3])
    assert proved(whole, whole, 1, replace(IN_SYNC, dated=dated)).verdict == Exact(1)


def test_aborted_records_are_told_where_nothing_was_ever_mirrored():
    rules = replace(IN_SYNC, aborted=frozenset({901}))
    assert proved(fingerprints_of([]), fingerprints_of([901]), 0, rules).verdict == Bounded(
        0, {"phantom_aborted": 1}
    )


def test_undated_record_that_stands_once_tells_the_place_beside_ones_that_repeat():
    values = [1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 11]
    source, target = (
        fingerprints_of(values, start=10, log_start=0),
        fingerprints_of(values, start=20, log_start=0),
    )
    assert proved(source, target, 20, replace(IN_SYNC, dated=False, oldest_copy=20)).verdict == Exact(30)
