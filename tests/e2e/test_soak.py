"""A minute of faults of ``make soak SOAK=faults``, twelve until all has settled; two of ``SOAK=crashes``."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from testbed.soak import crash, stop_and_move_under_faults

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]

MINUTES = 1.0


@pytest.mark.matrix
def test_job_is_stopped_started_and_migrated_while_everything_fails_and_counts_every_order_once(
    tmp_path: Path,
):
    seed = random.SystemRandom().randrange(1_000_000)
    assert stop_and_move_under_faults(tmp_path, seed, minutes=MINUTES), f"seed {seed}"


def test_driver_is_killed_whoever_starts_it_again_and_every_order_is_counted_and_written_once(tmp_path: Path):
    seed = random.SystemRandom().randrange(1_000_000)
    assert crash(tmp_path, seed, count=2), f"seed {seed}"
