"""Five minutes of ``make soak SOAK=faults``: store, driver and brokers fail while a job is moved."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from testbed.soak import stop_and_move_under_faults

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]

MINUTES = 5.0


def test_job_is_stopped_started_and_migrated_while_everything_fails_and_counts_every_order_once(
    tmp_path: Path,
):
    seed = random.SystemRandom().randrange(1_000_000)
    assert stop_and_move_under_faults(tmp_path, seed, minutes=MINUTES), f"seed {seed}"
