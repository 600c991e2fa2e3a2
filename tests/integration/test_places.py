"""Two roots that would use one checkpoint location, with real drivers, on a disk and on S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.protocol.places import MARK_KEY, OwnersMark
from airflow_flinkstyle.storage.open import open_store
from testbed.drivers import s3_env, s3_settings
from tests.integration.agent_lab import COUNT_JOB, Lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.s3 import S3Server

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture
def labs(tmp_path: Path) -> Iterator[tuple[Lab, Lab]]:
    labs = Lab(tmp_path / "staging"), Lab(tmp_path / "production")
    yield labs
    for lab in labs:
        lab.close()


@pytest.mark.nightly
@pytest.mark.parametrize("where", ["disk", pytest.param("s3", marks=pytest.mark.matrix)])
def test_driver_of_another_root_is_refused_beside_the_one_whose_place_it_is(
    labs: tuple[Lab, Lab], where: str, tmp_path: Path, request: pytest.FixtureRequest
):
    """And the owner's next generation continues there: Spark does not trip over the mark."""
    location, settings = str(tmp_path / "checkpoints"), None
    if where == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        server.create_bucket("places")
        location, settings = "s3a://places/job", s3_settings(server)
        for lab in labs:
            lab.conf.update(server.spark_conf())
            lab.env.update(s3_env(server))
    mine, theirs = labs
    for lab in labs:
        lab.claim(1, checkpoint_location=location)
        lab.order_takeover(1)
    first = mine.launch(1, mine.script(COUNT_JOB))
    mine.until_batch(1)

    second = theirs.launch(1, theirs.script(COUNT_JOB))
    failed = theirs.until_state(1, "failed")
    assert failed.error is not None
    assert failed.error[0] == "PLACE_OCCUPIED"
    assert f"generation 1 of job job of root {mine.board.root.root_id}" in failed.error[1]
    assert "counts in it" in failed.error[1]
    assert second.wait() == 1
    assert not theirs.out.exists()
    assert theirs.current() is None

    batch = mine.until_batch(1, above=mine.until_batch(1), driver=first)
    saved = mine.end_of(1, mine.ask(1, "stop_with_savepoint"))
    assert saved.outcome == "done", saved.detail
    assert first.wait() == 0
    files = mine.repository.read(str(saved.savepoint_id)).queries[0].files
    assert not [entry.path for entry in files if MARK_KEY in entry.path]
    closed = mine.until_state(1, "closed")
    mine.claim(2, follows=1, checkpoint_location=location)
    mine.order_takeover(2, closed_at=closed.batches())
    mine.launch(2, mine.script(COUNT_JOB))
    mine.until_batch(2, above=batch + 1)
    mine.end_of(2, mine.ask(2, "stop"))
    rows = mine.rows()
    assert [row["batch"] for row in rows] == list(range(len(rows)))
    assert all(row["n"] == row["top"] + 1 for row in rows if row["n"])

    place = open_store(location, settings)
    assert list(place.folders()) == ["counts"]
    assert [info.key for info in place.list("_")] == [MARK_KEY]
    assert OwnersMark.from_bytes(place.read(MARK_KEY)).generation == 1
