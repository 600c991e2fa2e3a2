"""Random worlds against the proof: a short slice, and a world for each stated limit (docs/translation.md)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_flinkstyle.kafka.verdict import Bounded, Exact, Refused
from airflow_flinkstyle.types import NextOffset
from testbed.worlds.generator import a_world
from testbed.worlds.judge import wrong
from testbed.worlds.proof import Answer, prove
from testbed.worlds.shrink import as_test, shrunk
from testbed.worlds.tally import judged, table
from testbed.worlds.world import ABORTED, GONE, OTHERS, RECORD, Entry, World


def an_entry(
    value: int, origin: int, *, key: int = 0, now: int | None = None, tombstone: bool = False
) -> Entry:
    return (RECORD, value, 1000 + value if now is None else now, key, tombstone, origin)


def source(*values: int) -> tuple[Entry, ...]:
    return tuple(an_entry(value, at) for at, value in enumerate(values))


def copies(log: tuple[Entry, ...], *offsets: int) -> tuple[Entry, ...]:
    return tuple(log[at] for at in offsets)


def others(*values: int) -> tuple[Entry, ...]:
    return tuple(an_entry(value, OTHERS) for value in values)


def verdict(world: World) -> Exact | Bounded | Refused:
    """Return an answer that must be right."""
    answer = prove(world)
    assert wrong(world, answer) is None
    assert isinstance(answer.verdict, Exact | Bounded | Refused)
    return answer.verdict


def test_slice_of_worlds_is_answered_rightly_and_a_good_part_exactly():
    """The whole million: python -m testbed.worlds --worlds 1000000."""
    tally = judged(range(4_000_000, 4_003_000))
    assert tally.faults == {}
    counts = {
        name: sum(n for (_, found), n in tally.verdicts.items() if found == name)
        for name in ("Exact", "Bounded")
    }
    assert counts["Exact"] > 500
    assert counts["Bounded"] > 500
    assert "| all |" in table(tally)


@pytest.mark.parametrize(
    "seed",
    [
        91_002,  # nothing but aborted records before the position, as far as may be read
        2_237_247,  # the newest record equals an aborted one, and the mirror stopped short
        2_294_985,  # it equals a deleted one of the same millisecond
    ],
)
def test_world_that_was_answered_wrongly_once_is_not_any_more(seed: int):
    assert judged(range(seed, seed + 1)).faults == {}


LONG = source(*range(1, 31))
FIRST, AGAIN = range(16), range(8, 30)
"""The mirror comes to the 16th record and begins again at the 9th; the position is the 13th."""


def a_rewound_world(between: tuple[Entry, ...], **settings: object) -> World:
    target = (*copies(LONG, *FIRST), *between, *copies(LONG, *AGAIN))
    return World(source=LONG, target=target, position=12, **settings)  # type: ignore[arg-type]


def test_judge_tells_a_record_of_others_that_is_passed_over_lost_or_miscounted():
    world = a_rewound_world(others(901))
    answer = prove(world)
    assert answer.verdict == Bounded(NextOffset(16), {"new": 1, "copy_before": 4})

    def judge(verdict: Exact | Bounded) -> str | None:
        return wrong(world, Answer(verdict, answer.source, answer.target))

    assert judge(Exact(NextOffset(21))) == "1 records of others are passed over, 0 are told of"
    assert judge(Bounded(NextOffset(21), {"passed_over": 1})) is None
    assert judge(Bounded(NextOffset(22), {})) == "an unread record is lost"
    assert judge(Exact(NextOffset(16))) == "exact, but other records follow"
    assert judge(Bounded(NextOffset(16), {"new": 2, "copy_before": 4})) == "6 extra records are told of"
    assert (
        judge(Bounded(NextOffset(16), {"new": 2, "copy_before": 3})) == "3 of class copy_before, not 4 to 4"
    )


def test_fault_is_shrunk_and_written_as_a_test_that_shows_it():
    world = a_rewound_world(others(901), sole_writer=True)  # a lie: the judge is told the truth below
    truth = replace(world, sole_writer=False)
    lie = prove(world)
    assert wrong(truth, lie) == "1 records of others are passed over, 0 are told of"
    assert shrunk(a_world(7)) != a_world(7), "without a fault everything can go"
    written = as_test(truth, "of_seed_7", "1 passed over")
    assert "def test_world_of_seed_7():" in written
    scope: dict[str, object] = {"World": World}
    exec(written.partition("\n")[2].partition("    assert")[0].replace("\n    ", "\n").strip(), scope)  # noqa: S102
    assert scope["world"] == truth


# Each stated limit: the world that breaks the assumption is answered wrongly, and the judge excuses it; the
# same world with the assumption is answered rightly, or refused.

READ_OTHERS = Bounded(NextOffset(16), {"new": 1, "copy_before": 4})


def test_limit_record_of_others_that_equals_a_dated_one_is_taken_for_its_copy():
    assert verdict(a_rewound_world(others(10))) == Exact(NextOffset(21))
    assert verdict(a_rewound_world((an_entry(10, OTHERS, now=2000),))) == READ_OTHERS
    undated = verdict(a_rewound_world(others(10), dated=False))
    assert isinstance(undated, Bounded)
    assert undated.offset <= 16


def test_limit_record_of_others_that_equals_an_aborted_one_is_taken_for_its_copy():
    aborted: Entry = (ABORTED, 901, 1901, 0, False, 30)
    log = (*LONG, aborted)
    broken = replace(a_rewound_world(others(901)), source=log)
    assert verdict(broken) == Exact(NextOffset(21))
    assert verdict(replace(broken, source=LONG)) == READ_OTHERS
    undated = verdict(replace(broken, dated=False))
    assert isinstance(undated, Bounded)
    assert undated.offset <= 16


def test_limit_equal_records_of_others_where_records_repeat_and_the_first_pass_lacks_some():
    """It comes to the second 60, which equals the first, without the 9 and the 50 before it."""
    log = tuple(
        an_entry(value, at, now=1000) for at, value in enumerate((*range(1, 9), 50, 60, 9, 50, 60, 10, 11))
    )
    again = copies(log, *range(9, 15))
    equal = (an_entry(50, OTHERS, now=1000),)
    lacking = (*copies(log, *range(10), 12), *equal, *again)
    world = World(source=log, target=lacking, position=12)
    assert verdict(world) == Exact(NextOffset(15))
    complete = verdict(replace(world, target=(*copies(log, *range(13)), *equal, *again)))
    assert isinstance(complete, Bounded)
    assert complete.offset <= 13
    strange = verdict(replace(world, target=(*copies(log, *range(10), 12), *others(901), *again)))
    assert strange == Bounded(NextOffset(15), {"passed_over": 1})


def test_limit_others_behind_first_copies_that_the_target_has_deleted():
    world = a_rewound_world(others(901))
    assert verdict(replace(world, target_start=16)) == Exact(NextOffset(21))
    assert verdict(replace(world, target_start=15)) == READ_OTHERS


def test_limit_others_behind_first_copies_that_are_compacted_away():
    keyed = tuple(an_entry(value, at, key=value) for at, value in enumerate(range(1, 31)))
    gone = tuple((GONE, *entry[1:]) for entry in copies(keyed, *range(8, 16)))
    between = (an_entry(901, OTHERS, key=100),)
    world = World(
        source=keyed,
        target=(*copies(keyed, *range(8)), *gone, *between, *copies(keyed, *AGAIN)),
        position=12,
        source_start=8,
        compacted=True,
    )
    assert verdict(world) == Exact(NextOffset(21))
    first = copies(keyed, *FIRST)
    assert verdict(replace(world, target=(*first, *between, *copies(keyed, *AGAIN)))) == READ_OTHERS


def test_limit_others_before_unread_records_if_all_that_was_read_is_deleted_on_the_source():
    world = World(
        source=LONG,
        target=(*copies(LONG, *range(12)), *others(901), *copies(LONG, *range(12, 30))),
        position=12,
    )
    assert verdict(replace(world, source_start=12)) == Exact(NextOffset(13))
    assert verdict(replace(world, source_start=11)) == Bounded(NextOffset(12), {"new": 1})


def test_limit_others_before_the_first_copies_of_what_was_compared():
    world = World(
        source=LONG, target=(*copies(LONG, 0, 1), *others(901), *copies(LONG, *range(2, 30))), position=12
    )
    assert verdict(world) == Exact(NextOffset(13))
    assert verdict(replace(world, context=12)) == Bounded(NextOffset(13), {"passed_over": 1})


def test_limit_record_of_others_that_equals_the_newest_shows_a_mirror_as_in_sync():
    world = World(
        source=LONG,
        target=(*copies(LONG, *range(29)), *others(30)),
        position=20,
        in_sync=False,
        stopped_short=True,
    )
    assert verdict(world) == Exact(NextOffset(20))
    assert isinstance(verdict(replace(world, target=(*copies(LONG, *range(29)), *others(901)))), Refused)


def test_limit_mirror_that_says_it_is_level_and_is_not():
    equal = tuple(an_entry(5, at, now=1000) for at in range(30))
    world = World(
        source=equal, target=equal[:25], position=28, source_start=10, sole_writer=True, stopped_short=True
    )
    assert verdict(world) == Exact(NextOffset(23)), "five more are to come, and would be read twice"
    assert isinstance(verdict(replace(world, in_sync=False)), Refused)


def test_limit_second_copies_whose_originals_are_deleted_or_far_back_look_like_records_of_others():
    target = (*copies(LONG, *range(18)), *copies(LONG, *range(4, 30)))
    world = World(source=LONG, target=target, position=20)
    assert verdict(world) == Exact(NextOffset(34))
    told = Bounded(NextOffset(34), {"passed_over": 8})
    assert verdict(replace(world, source_start=12)) == told
    assert verdict(replace(world, most_context=8)) == told
    assert verdict(replace(world, source_start=12, sole_writer=True)) == Exact(NextOffset(34))


def test_limit_only_the_newest_version_of_a_key_is_needed_on_compacted_topics():
    keyed = tuple(an_entry(value, at, key=value) for at, value in enumerate(range(1, 31)))
    old, new = an_entry(901, OTHERS, key=100), an_entry(902, OTHERS, key=100)
    target = (*copies(keyed, *FIRST), old, *copies(keyed, *AGAIN), new)
    world = World(source=keyed, target=target, position=12, compacted=True)
    assert verdict(world) == Bounded(NextOffset(21), {"new": 1})
    assert verdict(replace(world, target=target[:-1])) == READ_OTHERS, "the newest version is read"


def test_limit_deleted_record_as_new_as_the_newest_one_and_equal_to_it():
    """It stands before older ones, out of the order of time; the mirror copied it, and stopped short."""
    late = an_entry(30, 0)
    log = (late, *(an_entry(value, value) for value in range(1, 21)), an_entry(30, 21))
    target = (*copies(log, *range(1, 21)), late)
    world = World(source=log, source_start=1, target=target, position=21, in_sync=False, stopped_short=True)
    assert verdict(world) == Exact(NextOffset(20))
    assert isinstance(verdict(replace(world, source_start=0)), Refused)
    assert isinstance(verdict(replace(world, target=target[:-1])), Refused)
