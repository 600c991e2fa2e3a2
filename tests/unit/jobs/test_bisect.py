"""The first batch at which two versions of a job differ, found in passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.bisect import BisectAsked, Bisected, as_values, bisect_versions
from airflow_flinkstyle.jobs.comparison import CompareAsked, Version
from tests.unit.jobs.drivers import QUERY

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import Mood, World

FIRST, MORE = 10, 400


def bisected(world: World, *, narrow: int, batches: int = 4) -> tuple[Bisected, list[str]]:
    client = world.start(FIRST)
    pending = client.requests.request_savepoint("sp")
    saved = client.requests.finish_savepoint(pending, timeout_s=10.0)
    world.logs.produce(MORE)
    told: list[str] = []
    found = bisect_versions(
        client,
        *(Version(spec=world.spec(script), target=world.target()) for script in ("v1.py", "v2.py")),
        key="a person",
        savepoint_id=saved.savepoint_id,
        asked=BisectAsked(compare=CompareAsked(batches=batches, records=100, timeout_s=60.0), narrow=narrow),
        report=told.append,
    )
    world.until(lambda: world.alive() == [1])
    return found, told


def test_each_pass_cuts_the_batch_that_differs(world: World, mood: type[Mood]) -> None:
    """Of 100 records into 16 batches of 7, and one of those into batches of 1."""
    wrong = 100 + 237
    world.moods["v2.py"] = mood(differs_at=wrong)
    found, told = bisected(world, narrow=1)
    first = found.first
    assert first is not None
    ((begin, end),) = first._first_ranges().values()
    assert (found.passes, len(told), first.first_records) == (3, 3, 1)
    assert begin <= wrong < end
    said = as_values(found)
    assert (said["query"], said["batch"], said["records"]) == (QUERY, first.first_batch, 1)
    assert f"orders-0 {begin:,} to {end:,}" in found.as_markdown()
    assert f"first in batch {first.first_batch} (orders-0 {begin:,}" in found.found.as_markdown()


def test_versions_that_are_the_same_have_no_such_batch(world: World) -> None:
    found, _ = bisected(world, narrow=1, batches=2)
    assert (found.first, as_values(found)["verdict"], as_values(found)["batch"]) == (None, "same", None)
    assert found.as_markdown().startswith("No batch differs in its rows, in 1 pass: same")
