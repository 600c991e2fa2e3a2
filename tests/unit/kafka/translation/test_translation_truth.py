"""The proof against a hidden truth: which source record each target record is a copy of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_flinkstyle.kafka.fingerprints import Fingerprints
from airflow_flinkstyle.kafka.translation.alignment import Rules, Widen
from airflow_flinkstyle.kafka.translation.proof import Proof, prove_position
from airflow_flinkstyle.kafka.verdict import Bounded, Exact, Refused

if TYPE_CHECKING:
    from collections.abc import Sequence

NEW, PHANTOM = -1, -2


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A record on the target, and which source record it copies: its index, ``NEW`` or ``PHANTOM``."""

    content: int
    origin: int


@dataclass(frozen=True, kw_only=True)
class World:
    """Both logs, whole, and what only the test knows."""

    source: tuple[int, ...]
    target: tuple[Copy, ...]
    source_deleted: int = 0
    target_deleted: int = 0
    dated: bool = True
    sole_writer: bool = False
    caught_up: bool = True
    aborted: frozenset[int] = frozenset()

    def prove(self, at: int, *, context: int = 32) -> Proof:
        """Translate as the caller does: begin with short ranges and lengthen what does not decide."""
        unread = len(self.source) - at
        low, target_low = at - context, len(self.target) - unread - 2 * context
        while True:
            source = fingerprints_of(self.source, self.source_deleted, low)
            target = fingerprints_of([copy.content for copy in self.target], self.target_deleted, target_low)
            rules = Rules(
                caught_up=self.caught_up,
                dated=self.dated,
                sole_writer=self.sole_writer,
                aborted=self.aborted,
                oldest_copy=self.oldest_copy(source) if self.dated else 0,
            )
            outcome = prove_position(source, target, at, rules)
            if not isinstance(outcome, Widen):
                return outcome
            if outcome.side == "source":
                low = at - 4 * max(at - low, 1)
            else:
                target_low = len(self.target) - 4 * max(len(self.target) - target_low, 1)

    def oldest_copy(self, source: Fingerprints) -> int:
        """Answer as a broker does that is asked for the time of the oldest record compared.

        Equal records have equal times, so here contents are times.
        """
        copies = enumerate(copy.content for copy in self.target)
        since = min(source.prints, default=0)
        return next((i for i, ms in copies if i >= self.target_deleted and ms >= since), len(self.target))


def fingerprints_of(log: Sequence[int], deleted: int, low: int) -> Fingerprints:
    low = max(deleted, low)
    fingerprints = Fingerprints(low=low, high=len(log), log_start=deleted)
    for offset in range(low, len(log)):
        fingerprints.add(offset, log[offset], 0, tombstone=False)
    return fingerprints


def judge(world: World, at: int) -> Exact | Bounded | Refused:
    """Check the verdict against the truth: nothing lost, nothing read again that was not announced."""
    verdict = world.prove(at).verdict
    if isinstance(verdict, Refused):
        return verdict
    assert isinstance(verdict, Exact | Bounded)
    reads = world.target[verdict.offset :]
    unread = world.source[at:]
    remaining = iter([copy.content for copy in reads])
    assert all(record in remaining for record in unread), "lost"
    first_read = [i for i, copy in enumerate(world.target) if copy.origin == at - 1]
    since = first_read[0] + 1 if first_read else 0
    new = Counter(copy.content for copy in world.target[since:] if copy.origin == NEW)
    expected = Counter(unread) + new
    assert not expected - Counter(copy.content for copy in reads), "somebody's new records are lost"
    again = len(reads) - len(unread) - sum(1 for copy in reads if copy.origin == NEW)
    announced = verdict.replayed_records if isinstance(verdict, Bounded) else 0
    assert again <= announced, "read again without a word"
    if isinstance(verdict, Exact):
        assert Counter(copy.content for copy in reads) == Counter(unread)
    return verdict


def mirrored(source: Sequence[int], restarts: Sequence[tuple[int, int]]) -> list[Copy]:
    """Copy a log; at each restart the mirror has copied up to ``at`` and goes back by ``back``."""
    copies: list[Copy] = []
    done = 0
    for at, back in sorted(restarts):
        copies += [Copy(content=source[i], origin=i) for i in range(done, at)]
        done = max(0, at - back)
    return copies + [Copy(content=source[i], origin=i) for i in range(done, len(source))]


@settings(max_examples=400, deadline=None)
@given(st.data(), st.booleans(), st.booleans())
def test_hole_in_the_mirror_is_never_filled_with_records_that_were_read(data, dated: bool, sole: bool):  # noqa: ANN001
    period = data.draw(st.sampled_from([1, 2, 3, 7, 1000]))
    noise = data.draw(st.sets(st.integers(0, 60), max_size=3))
    source = [1000 + i if i in noise else i % period for i in range(data.draw(st.integers(1, 60)))]
    hole = data.draw(st.sets(st.integers(0, len(source) - 1), min_size=1, max_size=8))
    target = [copy for copy in mirrored(source, []) if copy.origin not in hole]
    judge(
        World(source=tuple(source), target=tuple(target), dated=dated, sole_writer=sole),
        data.draw(st.integers(0, len(source))),
    )


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mirror_that_stopped_short_is_never_level_by_content_alone(data):  # noqa: ANN001
    """Not even if it had repeated itself, so that it holds as many equal records as the source."""
    size = data.draw(st.integers(1, 120))
    period = data.draw(st.sampled_from([1, 2, 3, 8, 40, 60]))
    noise = data.draw(st.sets(st.integers(0, size), max_size=3))
    source = [1000 + i if i in noise else i % period + 1 for i in range(size)]
    mirrored_to = size - data.draw(st.integers(1, min(size, 40)))
    restarts = data.draw(st.lists(st.tuples(st.integers(0, mirrored_to), st.integers(0, 70)), max_size=2))
    deleted = data.draw(st.sampled_from([0, data.draw(st.integers(0, size))]))
    world = World(
        source=tuple(source),
        target=tuple(mirrored(source[:mirrored_to], restarts)),
        source_deleted=deleted,
        dated=False,
        caught_up=False,
    )
    assert isinstance(world.prove(data.draw(st.integers(deleted, size))).verdict, Refused)


@st.composite
def worlds(draw: st.DrawFn, *, new: bool, repeating: bool):
    size = draw(st.integers(0, 90))
    if repeating:
        period = draw(st.integers(1, 12))
        noise = draw(st.sets(st.integers(0, 90), max_size=4))
        source = [1000 + i if i in noise else i % period for i in range(size)]
    else:
        source = list(range(1, size + 1))
    restarts = draw(st.lists(st.tuples(st.integers(0, size), st.integers(0, 20)), max_size=2))
    target = mirrored(source, restarts)
    for number in range(draw(st.integers(0, 3)) if new else 0):
        at = draw(st.integers(0, len(target)))
        length = draw(st.integers(1, 6))
        same = repeating and len(set(source)) < len(source) and draw(st.booleans())
        own = [
            Copy(content=target[(at + i) % len(target)].content if same and target else 10**6 + i, origin=NEW)
            for i in range(number, number + length)
        ]
        target[at:at] = own
    position = draw(st.integers(0, size))
    deleted = draw(st.sampled_from([0, position, draw(st.integers(0, position))]))
    return source, target, position, deleted


@settings(max_examples=400, deadline=None)
@given(worlds(new=False, repeating=False), st.booleans(), st.booleans())
def test_restarted_mirror_of_unique_records_is_exact_or_bounded(world, dated: bool, sole: bool):  # noqa: ANN001
    source, target, at, deleted = world
    found = judge(
        World(
            source=tuple(source), target=tuple(target), source_deleted=deleted, dated=dated, sole_writer=sole
        ),
        at,
    )
    if dated and not deleted:
        assert not isinstance(found, Refused)


@settings(max_examples=400, deadline=None)
@given(worlds(new=True, repeating=False), st.booleans())
def test_new_records_of_the_targets_own_producers_are_neither_lost_nor_taken_for_copies(world, dated: bool):  # noqa: ANN001
    source, target, at, _ = world
    judge(World(source=tuple(source), target=tuple(target), dated=dated), at)


@settings(max_examples=500, deadline=None)
@given(worlds(new=True, repeating=True), st.booleans())
def test_repeating_records_lose_nothing_though_new_ones_equal_copies(world, dated: bool):  # noqa: ANN001
    source, target, at, _ = world
    times = Counter(source)
    # A record that equals one the source holds once, time included, is taken for its copy.
    told_apart = all(times[copy.content] != 1 for copy in target if copy.origin == NEW)
    judge(World(source=tuple(source), target=tuple(target), dated=dated and told_apart), at)


@settings(max_examples=400, deadline=None)
@given(worlds(new=False, repeating=True), st.booleans())
def test_repeating_records_of_a_sole_writer_are_translated(world, dated: bool):  # noqa: ANN001
    source, target, at, deleted = world
    judge(
        World(
            source=tuple(source),
            target=tuple(target),
            source_deleted=deleted,
            dated=dated,
            sole_writer=True,
        ),
        at,
    )
