"""Finding one log's records on another from the newest back, against what looks at each record by itself."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_flinkstyle.kafka.fingerprints import NO_KEY, Fingerprints
from airflow_flinkstyle.kafka.translation.proof import Match, equal_run, walk_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    Record = tuple[int, int, bool]
    """Content, key, whether it is a deletion."""


def fingerprints_of(records: Sequence[Record]) -> Fingerprints:
    fingerprints = Fingerprints(low=0, high=len(records), log_start=0)
    for offset, (content, key, tombstone) in enumerate(records):
        fingerprints.add(offset, content, key, tombstone=tombstone)
    return fingerprints


@dataclass
class Simple:
    """What a walk finds that compares record by record."""

    at: int
    places: list[int] = field(default_factory=list)
    absent: Counter[str] = field(default_factory=Counter)
    missing: list[int] = field(default_factory=list)


def simply(
    source: Sequence[Record],
    records: range,
    target: Sequence[Record],
    end: int,
    *,
    compacted: bool,
    holes: bool,
) -> Simple:
    found = Simple(at=end)
    newer = {key for _, key, _ in source[records.stop :]}
    for i in reversed(records):
        content, key, tombstone = source[i]
        copies = [j for j in range(found.at) if target[j][0] == content]
        if copies:
            found.at = copies[-1]
            found.places.append(found.at)
            newer.add(key)
        elif compacted and key != NO_KEY and key in newer:
            found.absent["superseded"] += 1
        elif compacted and tombstone and all(target[j][1] != key for j in range(found.at)):
            found.absent["tombstone"] += 1
            newer.add(key)
        elif not holes:
            found.missing.append(i)
    return found


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[list[Record], list[Record], range, int]:
    contents = st.integers(1, draw(st.sampled_from([2, 6, 60])))
    record = st.tuples(contents, st.integers(NO_KEY, 3), st.booleans())
    # Short lists are what is drawn most if nothing is said of their length.
    source = draw(st.lists(record, min_size=draw(st.sampled_from([0, 12])), max_size=30))
    kept = draw(st.lists(st.booleans(), min_size=len(source), max_size=len(source)))
    target = [one for one, stays in zip(source, kept, strict=True) if stays] + draw(
        st.lists(record, max_size=5)
    )
    if draw(st.booleans()):
        target = draw(st.permutations(target))
    newer, first, unsearched = draw(st.tuples(*[st.integers(0, 5)] * 3))
    stop = max(0, len(source) - newer)
    return source, target, range(min(first, stop), stop), max(0, len(target) - unsearched)


@settings(max_examples=400, deadline=None)
@given(two_logs(), st.booleans(), st.booleans())
def test_records_are_found_as_if_each_was_looked_for_by_itself(logs, compacted: bool, holes: bool):  # noqa: ANN001
    source, target, records, end = logs
    expected = simply(source, records, target, end, compacted=compacted, holes=holes)
    match = walk_back(
        fingerprints_of(source), records, fingerprints_of(target), end, compacted=compacted, holes=holes
    )
    places = [j for low, high in match.runs for j in reversed(range(low, high))]
    assert places == expected.places
    assert (match.at, match.missing) == (expected.at, expected.missing)
    assert match.absent == expected.absent
    assert match.found == len(places)
    assert match.end == (places[0] + 1 if places else end)
    for start, stop in combinations(range(0, len(target) + 1, 1 + len(target) // 8), 2):
        assert set(match.others(start, stop)) == set(range(start, stop)).difference(places)


@pytest.mark.parametrize("swapped", [1, 15, 16, 17, 40])
def test_windows_that_differ_in_many_places_are_searched_by_an_index_with_the_same_outcome(swapped: int):
    """Neighbours that changed places: each costs a search, and many make an index."""
    source = [(content, content, False) for content in range(200)]
    target = list(source)
    for i in range(swapped):
        target[4 * i], target[4 * i + 1] = target[4 * i + 1], target[4 * i]
    expected = simply(source, range(200), target, 200, compacted=False, holes=False)
    match = walk_back(fingerprints_of(source), range(200), fingerprints_of(target), 200, compacted=False)
    assert match.missing == expected.missing
    assert len(match.missing) == swapped
    assert match.at == expected.at


def test_deletion_that_is_searched_by_an_index_is_absent_only_if_what_it_deletes_is():
    source = [(1000 + n, 1 + n, True) for n in range(60)]
    target = [(n, 1 + n, False) for n in range(0, 60, 2)]
    match = walk_back(
        fingerprints_of(source), range(60), fingerprints_of(target), len(target), compacted=True
    )
    assert match.missing == list(range(58, -1, -2))
    assert match.absent == Counter(tombstone=30)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=8), st.integers(0, 50))
def test_equal_run_counts_what_is_equal_before_both_ends(tail: list[int], head: list[int], most: int):
    one, other = array("Q", [*head, *tail, 7, 7]), array("Q", [*reversed(head), *tail, 8])
    one_end, other_end = len(one) - 2, len(other) - 1
    equal = 0
    while equal < min(most, one_end, other_end) and one[one_end - equal - 1] == other[other_end - equal - 1]:
        equal += 1
    assert equal_run(one, one_end, other, other_end, most) == equal


def test_equal_run_of_many_records_is_counted_to_the_last():
    records = array("Q", range(300_000))
    other = array("Q", records)
    assert equal_run(records, 300_000, other, 300_000, 300_000) == 300_000
    other[77_777] = 0
    assert equal_run(records, 300_000, other, 300_000, 300_000) == 300_000 - 77_778


def test_stretches_of_the_target_that_adjoin_are_noted_as_one():
    source, target = [(1, 0, False), (2, 0, False), (3, 0, False)], [(1, 0, False), (3, 0, False)]
    match = walk_back(fingerprints_of(source), range(3), fingerprints_of(target), 2, compacted=False)
    assert (match.runs, match.missing, match.found, match.end) == ([(0, 2)], [1], 2, 2)


def test_each_older_version_of_a_key_that_is_absent_is_counted():
    source = [(content, 7, False) for content in (1, 2, 3)]
    match = walk_back(fingerprints_of(source), range(3), fingerprints_of(source[2:]), 1, compacted=True)
    assert (match.absent, match.missing) == (Counter(superseded=2), [])


def test_match_without_records_ends_where_it_began():
    match = Match(at=4)
    assert (match.found, match.end, list(match.others(1, 4))) == (0, 4, [1, 2, 3])
