"""Scripts drawn from seeds, plainly and under the agent: outputs and states are equal, or it is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed.differential.case import Case
from testbed.differential.report import line
from testbed.differential.run import Task, run_all

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.kafka, pytest.mark.nightly]


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(1, 4), id="three"),
        pytest.param(range(4, 8), id="four more", marks=pytest.mark.matrix),
    ],
)
def test_small_scripts_do_under_the_agent_what_they_do_plainly(seeds: range, tmp_path: Path):
    tasks = [Task(label=f"small-{seed}", case=Case.small(seed)) for seed in seeds]
    results = list(run_all(tasks, tmp_path, lanes=2))
    wrong = [
        f"{line(result)}\n{result.case.to_json()}" for result in results if result.verdict.kind == "failed"
    ]
    assert not wrong, "\n".join(wrong)
    assert sum(result.verdict.kind == "equal" for result in results) > len(results) // 2
    assert sum(bool(result.verdict.done) for result in results) > len(results) // 3, "nothing was tried"
