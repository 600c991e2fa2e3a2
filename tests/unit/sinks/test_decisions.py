"""What of a batch is left out because it is there, and what is refused instead."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks.decisions import (
    begins_behind,
    begun,
    none_yet,
    records_there,
    require_next,
    require_nothing_half_written,
    require_same_batch,
    require_same_shard,
    require_shards,
    written_before,
)
from airflow_flinkstyle.sinks.errors import (
    PLAN_CHANGED,
    REPLAY_DIFFERS,
    RUN_SUPERSEDED,
    SHARD_COUNT,
    SINK_LINEAGE,
)
from airflow_flinkstyle.sinks.marker import WRAP, Completion, Marker
from airflow_flinkstyle.sinks.resume import Resume
from airflow_flinkstyle.sinks.settings import SinkSettings
from testbed.refusals import refuses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.sinks.decisions import Total

PLAN = "4-columns"
RUN = "run 7"
BATCH = 10


def the_settings(**changed: Any) -> SinkSettings:
    given = {"topic": "out", "lineage": "line", "shards": 4, "control_topic": "line.internal", "run": RUN}
    cluster = KafkaCluster(name="sink", config={"bootstrap.servers": "kafka:9092"})
    return SinkSettings(**{"cluster": cluster, **given, **changed})


def a_marker(batch_id: int = BATCH, **changed: Any) -> Marker:
    given = {"batch_id": batch_id, "records": 5, "digest": 77, "plan": PLAN, "run": RUN}
    return Marker(**{**given, **changed})


def a_completion(batch_id: int = BATCH, **changed: Any) -> Completion:
    return Completion(**{"batch_id": batch_id, "records": 5, "shards": 4, "query_id": "query", **changed})


def there(before: Marker | None, **changed: Any) -> Marker | None:
    return written_before(the_settings(**changed), before, shard=2, batch_id=BATCH, plan=PLAN)


def test_shard_is_left_out_only_if_its_marker_is_of_this_very_batch():
    assert there(a_marker(BATCH)) == a_marker(BATCH)
    assert there(a_marker(BATCH - 1)) is None
    assert there(a_marker(BATCH - 9)) is None
    with refuses(SINK_LINEAGE, match="line was expected to end before batch 10, but has written batch 11"):
        there(a_marker(BATCH + 1))


def test_shard_that_is_there_is_left_out_whichever_run_has_written_it():
    assert there(a_marker(run="run 6")) is not None
    assert there(a_marker(run="")) is not None


@pytest.mark.parametrize("plan", ["4-other columns", "3-columns"])
def test_shard_of_this_batch_with_another_plan_is_refused(plan: str):
    with refuses(PLAN_CHANGED, match=r"Batch 10, .* shards 2\b"):
        there(a_marker(plan=plan))


def test_shard_that_another_run_has_claimed_is_not_written():
    with refuses(RUN_SUPERSEDED, match=r"[Ss]hard 2 of lineage line"):
        there(a_marker(BATCH - 1, run="run 8"))
    with refuses(RUN_SUPERSEDED):
        there(None)  # each run claims its shards before it writes


@pytest.mark.parametrize("now", [(5, 78), (6, 77), (0, 0)])
def test_shard_that_is_run_again_must_come_to_the_same_records(now: Total):
    require_same_shard(BATCH, 2, a_marker(), (5, 77))
    with refuses(REPLAY_DIFFERS, match=r"Batch 10, .* shards 2\b"):
        require_same_shard(BATCH, 2, a_marker(), now)


def found(
    was: Mapping[int, Marker], now: Mapping[int, Total], *, complete: bool, plan: str = PLAN
) -> int | None:
    return records_there(BATCH, was, complete=complete, plan=plan, totals=lambda: now)


SAME = {0: (5, 77), 1: (5, 77)}


def test_batch_that_no_shard_has_written_is_not_even_looked_at():
    def totals() -> Mapping[int, Total]:
        raise AssertionError("the plan was run in vain")

    for complete in (False, True):
        assert records_there(BATCH, {}, complete=complete, plan=PLAN, totals=totals) is None


def test_complete_batch_is_left_out_whole_and_tells_its_records():
    assert found({0: a_marker(), 1: a_marker()}, SAME, complete=True) == 10


def test_complete_batch_may_come_spread_over_other_shards_but_not_with_other_records():
    was = {0: a_marker(), 1: a_marker(digest=WRAP - 2)}
    assert found(was, {0: (9, 70), 1: (1, 5), 2: (0, 0)}, complete=True, plan="3-columns") == 10
    for other in ({0: (9, 70), 1: (1, 6)}, {0: (9, 70), 1: (2, 5)}):
        with refuses(REPLAY_DIFFERS, match="Batch 10, "):
            found(was, other, complete=True)


def test_half_written_batch_is_compared_shard_by_shard_and_then_written():
    was = {1: a_marker()}
    assert found(was, {0: (9, 9), 1: (5, 77)}, complete=False) is None
    # The sum over both shards is as it was, the shard that is there is not.
    with refuses(REPLAY_DIFFERS, match=r"Batch 10, .* shards 1\b"):
        found(was, {0: (5, 77), 1: (0, 0)}, complete=False)


@pytest.mark.parametrize("complete", [False, True])
def test_batch_that_was_written_with_other_columns_is_refused_and_names_those_shards(complete: bool):
    was = {0: a_marker(), 3: a_marker(plan="4-others")}
    with refuses(PLAN_CHANGED, match=r"Batch 10, .* shards 3\b"):
        found(was, SAME, complete=complete)


def test_same_records_in_another_order_of_shards_are_the_same_batch():
    was = {0: a_marker(records=1, digest=WRAP - 1), 1: a_marker(records=2, digest=3)}
    assert require_same_batch(BATCH, was, [(2, 3), (1, WRAP - 1)]) == 3
    assert require_same_batch(BATCH, was, [(3, 2)]) == 3
    with refuses(REPLAY_DIFFERS, match=r"Batch 10, .* shards 0, 1 "):
        require_same_batch(BATCH, was, [(3, 3)])


def follows(completed: int | None, newest: int, batch_id: int) -> bool:
    settings, markers = the_settings(), {0: a_marker(newest)} if newest >= 0 else {}
    try:
        done = none_yet(settings, "query", batch_id) if completed is None else a_completion(completed)
        require_next(settings, done, markers, query_id="query", batch_id=batch_id)
    except FlinkstyleError as error:
        if error.code != SINK_LINEAGE.code:
            raise
        return False
    return True


def test_batch_follows_only_if_nothing_would_be_left_out_or_jumped_over():
    for completed, written, batch_id in itertools.product(range(-1, 3), range(-1, 4), range(5)):
        newest = max(completed, written)
        # Spark runs again the newest batch it planned, never an older one: all else is another history.
        expected = batch_id in (completed, completed + 1) and batch_id >= newest
        assert follows(completed, written, batch_id) is expected, (completed, written, batch_id)


def test_lineage_without_a_completion_begins_with_batch_0_only():
    assert follows(None, -1, 0)
    assert not follows(None, -1, 1)
    assert none_yet(the_settings(), "query", 0) == a_completion(-1, records=0)
    with refuses(SINK_LINEAGE, match="written the batches before 1, found no record of any"):
        none_yet(the_settings(), "query", 1)


def test_lineage_of_another_query_is_refused_whatever_the_batch():
    other = a_completion(BATCH, query_id="another")
    for batch_id in (BATCH, BATCH + 1):
        with refuses(SINK_LINEAGE, match="by query query, but query another"):
            require_next(the_settings(), other, {}, query_id="query", batch_id=batch_id)


def starts(completed: int, markers: Mapping[int, Marker], batch_id: int) -> None:
    require_next(the_settings(), a_completion(completed), markers, query_id="query", batch_id=batch_id)


def test_run_begins_with_the_batch_after_the_last_or_with_the_newest_again():
    starts(BATCH, {0: a_marker(), 1: a_marker()}, BATCH + 1)
    starts(BATCH, {0: a_marker(), 1: a_marker()}, BATCH)
    starts(BATCH - 1, {0: a_marker(), 1: a_marker(BATCH - 1)}, BATCH)
    starts(-1, {}, 0)


def test_run_that_would_begin_behind_what_a_shard_has_written_is_refused():
    with refuses(SINK_LINEAGE, match="completed batch 9 and written batch 10, so batch 10 was expected"):
        starts(BATCH - 1, {0: a_marker(BATCH - 1), 1: a_marker()}, BATCH - 1)
    with refuses(SINK_LINEAGE, match="written batch 10, so batch 11 was expected next, found 12"):
        starts(BATCH, {}, BATCH + 2)


def test_half_written_batch_goes_on_with_the_number_of_shards_it_was_begun_with():
    markers = {0: a_marker(plan="3-columns"), 1: a_marker(BATCH - 1)}
    with refuses(SHARD_COUNT, match="Batch 10 is half written with 3 shards, but the job asks for 4"):
        starts(BATCH - 1, markers, BATCH)
    require_shards(the_settings(shards=3), a_completion(BATCH - 1), markers)
    starts(BATCH, markers, BATCH + 1)  # it is complete: the number may change
    with refuses(SHARD_COUNT):
        require_shards(the_settings(), None, {0: a_marker(0, plan="3-columns")})


def test_lineage_that_comes_back_is_refused_where_a_driver_went_on_after_it_left():
    markers = {0: a_marker(), 1: a_marker(BATCH + 1), 2: a_marker(BATCH - 1)}
    require_nothing_half_written(the_settings(), a_completion(BATCH + 1), markers)
    with refuses(SINK_LINEAGE, match=r"behind batch 10, found that shards \[1\] have written up to batch 11"):
        require_nothing_half_written(the_settings(), a_completion(BATCH), markers)
    with refuses(SINK_LINEAGE, match=r"behind batch -1, found that shards \[0\] "):
        require_nothing_half_written(the_settings(), None, {0: a_marker(0)})


def test_lineage_begins_behind_the_savepoint_where_its_sink_says_so():
    resume = Resume(mode="continue", after_batch=BATCH, lineage="line", cluster_id="old", suffix="7")
    assert begins_behind(None, "new", BATCH + 1, None) is None
    assert begins_behind(resume, "new", BATCH + 1, None) == BATCH
    assert begins_behind(resume, "new", BATCH + 1, a_completion(BATCH - 1)) == BATCH
    assert begins_behind(resume, "new", BATCH + 1, a_completion(BATCH)) is None
    assert begins_behind(resume, "old", BATCH + 1, None) is None
    assert begins_behind(resume, "new", BATCH + 2, None) is None
    assert begun(the_settings(), "query", BATCH) == a_completion(BATCH, records=0)
