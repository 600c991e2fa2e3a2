"""Kills around the transactional sink; the whole run is `make chaos`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from testbed.chaos import chaos
from testbed.chaos_plan import short

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.kafka]


def test_twenty_kills_and_zombies_lose_nothing_and_double_nothing(tmp_path: Path):
    seed = random.SystemRandom().randrange(1_000_000)
    report = chaos(tmp_path, short(), seed=seed)
    assert not report.broken_promises(20), f"seed {seed}\n{report.as_markdown()}"
