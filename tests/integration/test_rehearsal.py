"""Rehearsals with real drivers: the new version runs on a scratch copy beside the job that runs on."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.protocol.rehearsal_records import Rehearsal, Rehearse
from airflow_flinkstyle.types import Generation
from tests.integration.agent_lab import COUNT_JOB, Lab, logs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.agent_lab import Driver
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark]

OTHER_STATE = COUNT_JOB.replace('F.max("value")', 'F.collect_list("value")').replace(
    'F.max("top")', "F.size(F.first('top'))"
)
"""Keeps another state under the same operator."""
BREAKS_IN_BATCH = COUNT_JOB.replace(
    'keys = rows.groupBy((F.col("value") % 7).alias("k"))',
    "def raising(value):\n"
    "    raise ValueError('broken in its first batch')\n"
    'keys = rows.withColumn("value", F.udf(raising, "long")("value"))'
    '.groupBy((F.col("value") % 7).alias("k"))',
)
NEVER_ENDS = BREAKS_IN_BATCH.replace(
    "raise ValueError", "import time\n    time.sleep(3600)\n    raise ValueError"
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    """One job that runs all the time, with a hot savepoint ``sp-1`` of it."""
    lab = Lab(tmp_path_factory.mktemp("rehearsal") / "lab", warm=warm_jvms)
    lab.start(1, lab.script(COUNT_JOB))
    lab.until_batch(1, above=1)
    assert lab.end_of(1, lab.ask(1, "savepoint")).outcome == "done"
    yield lab
    lab.close()


def rehearse(lab: Lab, generation: int, text: str, **asked: float) -> Driver:
    lab.claim(
        generation, follows=1, prepare_savepoint_id="sp-1", rehearse=Rehearse(**{"batches": 2, **asked})
    )
    return lab.launch(generation, lab.script(text, f"v{generation}.py"))


def scratch(lab: Lab, generation: int) -> Path:
    return Path(f"{lab.folder}/checkpoints-{generation}.rehearsal")


def told(lab: Lab, generation: int) -> Rehearsal:
    found = lab.board.rehearsal(Generation(generation))
    assert found is not None
    return found


def require_uninterrupted(lab: Lab, before: int) -> None:
    """Require that the old version has committed batches all the time, and goes on."""
    last = lab.until_batch(1, above=before)
    batches = [row["batch"] for row in lab.rows()]
    assert all(after == one + 1 for one, after in pairwise(batches))
    assert [row for row in lab.rows() if row["n"] is not None and row["n"] != row["top"] + 1] == []
    assert last >= before
    heartbeat = lab.heartbeat(1)
    assert heartbeat is not None
    assert (heartbeat.state, heartbeat.incarnation) == ("running", 1)


@pytest.mark.parametrize(
    ("generation", "text", "says"),
    [
        (3, 'raise RuntimeError("broken at import")', "broken at import"),
        (4, BREAKS_IN_BATCH, "broken in its first batch"),
        (5, OTHER_STATE, "schema"),
    ],
    ids=["import", "first batch", "state schema"],
)
def test_version_that_is_broken_fails_while_the_job_runs_on(lab: Lab, generation: int, text: str, says: str):
    before = lab.until_batch(1)
    driver = rehearse(lab, generation, text)
    beat = lab.until_state(generation, "failed")
    assert says in beat.error[1]
    assert driver.wait() == 1
    if generation > 3:
        assert beat.error[0] == "REHEARSAL_FAILED"
        assert says in told(lab, generation).failure[1]
    assert not scratch(lab, generation).exists()
    require_uninterrupted(lab, before)


@pytest.mark.matrix
def test_rehearsal_that_never_ends_is_given_up_in_time(lab: Lab):
    before = lab.until_batch(1)
    driver = rehearse(lab, 6, NEVER_ENDS, timeout_s=5)
    beat = lab.until_state(6, "failed")
    assert "REHEARSAL_TIMEOUT" in told(lab, 6).failure[0]
    assert "within 5 s" in beat.error[1]
    assert driver.wait() == 1
    require_uninterrupted(lab, before)


def test_drill_restores_and_runs_a_copy_and_its_driver_ends_without_holding_the_job(lab: Lab):
    before = lab.until_batch(1)
    driver = rehearse(lab, 9, COUNT_JOB, only=True)
    assert driver.wait() == 0
    beat = lab.heartbeat(9)
    assert beat is not None
    assert (beat.state, dict(beat.queries)) == ("closed", {})
    found = told(lab, 9)
    require_rehearsed(found)
    assert 0 < found.queries["counts"].restore_s < found.seconds
    assert not scratch(lab, 9).exists()
    assert not (lab.folder / "checkpoints-9").exists()
    require_uninterrupted(lab, before)


@pytest.mark.nightly
def test_killed_rehearsal_leaves_nothing_behind_the_next_one_which_then_takes_over(lab: Lab):
    killed = rehearse(lab, 7, NEVER_ENDS)
    lab.until("the copy runs a batch", lambda: list(scratch(lab, 7).glob("counts/offsets/[0-9]*")))
    killed.kill()
    assert scratch(lab, 7).exists()

    before = lab.until_batch(1)
    rehearse(lab, 8, COUNT_JOB)
    lab.until_state(8, "standby")
    require_rehearsed(told(lab, 8))
    assert not scratch(lab, 8).exists()
    restored = lab.repository.read("sp-1").queries[0].batch_id
    assert logs_of(str(lab.folder / "checkpoints-8"))[1] == {restored}
    require_uninterrupted(lab, before)

    end = lab.end_of(1, lab.ask(1, "stop_with_savepoint"))
    lab.order_takeover(8, savepoint_id=end.savepoint_id, closed_at=dict(end.batches))
    lab.until_batch(8, above=end.batches["counts"])
    lab.until("the copy is gone", lambda: not scratch(lab, 7).exists())
    assert [row for row in lab.rows() if row["n"] is not None and row["n"] != row["top"] + 1] == []
    assert [row["batch"] for row in lab.rows()] == list(range(len(lab.rows())))


def require_rehearsed(found: Rehearsal) -> None:
    assert found.failure is None
    query = found.queries["counts"]
    assert (query.batches, query.state_schema) == (2, "unchanged")
    assert query.input_rows > 0
    assert {one.what: one.verdict for one in found.compared} == {
        "Python": "compatible",
        "Spark": "compatible",
        "output mode": "compatible",
        "spark.sql.shuffle.partitions": "compatible",
        "spark.sql.streaming.stateStore.providerClass": "compatible",
        "sink": "compatible",
        "state schema": "compatible",
    }
    assert "| state schema | as saved | unchanged | compatible |" in found.as_markdown()
    assert len(query.seconds) == 2
    assert "foreachBatch" in " ".join(query.untested)
    assert re.fullmatch(
        r"rehearsed: 2 batches, [\d,]+ rows, \d+\.\d s each, state schema unchanged", found.summary()
    )
