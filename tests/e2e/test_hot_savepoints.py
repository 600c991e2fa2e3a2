"""Savepoints at random moments under load, of every state store: each is started by Spark and compared."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from testbed import hot
from testbed.hot_job import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.answers import Answering
    from tests.conftest import KafkaPair

pytestmark = pytest.mark.e2e

RATE_PER_S = 400.0


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Answering]:
    with hot.starter(tmp_path) as starter:
        yield starter


@pytest.mark.nightly
@pytest.mark.parametrize("savepoints", [3])
def test_hot_savepoints_of_all_state_stores_are_true_at_their_own_offsets_and_start(
    kafka_pair: KafkaPair, starter: Answering, tmp_path: Path, savepoints: int
):
    seed = random.SystemRandom().randrange(1_000_000)
    print("seed", seed)  # noqa: T201  (shown when the test fails)
    job = hot.HotJob(tmp_path / "job", kafka_pair.old, "hot-savepoints")
    with job.orders:
        tally = hot.soak(job, starter, seed=seed, savepoints=savepoints, rate_per_s=RATE_PER_S)
    assert tally.bad == []
    assert tally.counts == {(name, "right"): savepoints for name in KINDS}
