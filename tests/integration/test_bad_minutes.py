"""A few seeds of ``make faults``: the package's callers and agent, a real S3 server, a bad way between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed.bad_s3 import FAULTS
from tests.bad_minutes.lane import run_lanes
from tests.bad_minutes.report import PHASES, total

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.nightly]


def test_job_outlives_bad_minutes_of_s3_and_nothing_is_lost_half_or_stuck(tmp_path: Path):
    found = total(run_lanes(tmp_path, range(1, 3), lanes=2))
    assert found.wrong == []
    assert all(found.phases[phase] >= 2 for phase in PHASES)
    assert sum(found.hits[phase, fault] for phase in PHASES for fault in FAULTS) > 0
