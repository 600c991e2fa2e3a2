"""Kills around the transactional sink; the whole run is `make chaos`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from testbed.chaos import chaos
from testbed.chaos_plan import StagePlan, away, brief, short, small

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.kafka, pytest.mark.nightly]


@pytest.mark.parametrize(
    "stages",
    [
        pytest.param(brief(), id="six"),
        pytest.param(short(), id="twenty", marks=pytest.mark.matrix),
        pytest.param(away(12), id="broker away", marks=pytest.mark.matrix),
        pytest.param(small(12), id="small batches", marks=pytest.mark.matrix),
    ],
)
def test_kills_and_zombies_lose_nothing_and_double_nothing(stages: list[StagePlan], tmp_path: Path):
    seed = random.SystemRandom().randrange(1_000_000)
    report = chaos(tmp_path, stages, seed=seed)
    kills = sum(stage.kills for stage in stages)
    assert not report.broken_promises(kills), f"seed {seed}\n{report.as_markdown()}"
