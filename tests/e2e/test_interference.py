"""People and accidents interfere with migrations and upgrades in a real Airflow; every order is judged.

A short selection runs with the tests; ``make interference`` runs ``RUNS``, at phases drawn by ``SEED``.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from tests.e2e.interference import (
    HEAD,
    OF_A_RUN,
    OF_AIRFLOW,
    WITHOUT_RETRY,
    InterferedAirflow,
    Interference,
    Outcome,
)

if TYPE_CHECKING:
    from testbed.judge import StateReader
    from testbed.scenario import OrdersScenario

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.nightly]
BEFORE_TAKEOVER = ("standby", "precopy", "hold", "fence", "caught-up", "stop", "translate", "rewrite")
BEHIND_IT = ("takeover-order", "takeover", "release")
OF_UPGRADES = ("standby", "precopy", "stop", "takeover-order", "takeover", "verify")
SHORT = (
    Interference(cutover="migration", what="mark the run failed", phase="caught-up"),
    Interference(cutover="migration", what="delete the run", phase="stop"),
    Interference(cutover="migration", what="kill all of Airflow", phase="takeover"),
)


def drawn() -> list[Interference]:
    """Return the cases, at phases drawn by the seed; the last one may move the job for good.

    Before that migrations are given up for what keeps them from a retry, so that the job can be moved again;
    upgrades meet everything.
    """
    runs = int(os.environ.get("FLINKSTYLE_INTERFERENCE", "0"))
    if not runs:
        return list(SHORT)
    luck = random.Random(int(os.environ.get("SEED", "1")))  # noqa: S311
    kinds = (*OF_A_RUN, *OF_AIRFLOW)
    cases = [
        *(
            Interference(cutover="migration", what=what, phase=luck.choice(BEFORE_TAKEOVER))
            for what in WITHOUT_RETRY
        ),
        *(Interference(cutover="upgrade", what=what, phase=luck.choice(OF_UPGRADES)) for what in kinds),
    ]
    luck.shuffle(cases)
    last = Interference(cutover="migration", what=luck.choice(kinds), phase=luck.choice(BEHIND_IT))
    return [*cases[: runs - 1], last]


def test_whatever_is_done_to_its_airflow_the_job_runs_on_one_side_and_its_producers_are_free(
    scenario: OrdersScenario, reader: StateReader
):
    scenario.start_producer(rate_per_s=100)
    scenario.start()
    outcomes: list[Outcome] = []
    interfered = InterferedAirflow(scenario)
    with interfered.airflow:
        for case in drawn():
            outcomes.append(interfered.run(case))
            print(outcomes[-1].row(), flush=True)  # noqa: T201 - a long run
            scenario.wait_commits(1)
            if case.cutover == "migration" and outcomes[-1].runs_on == "new":
                break  # producers are on the target: another migration would be one back
    moved = any(one.case.cutover == "migration" and one.runs_on == "new" for one in outcomes)
    judgement = scenario.judge(reader, scenario.new if moved else scenario.old)
    print("\n".join((HEAD, *(one.row() for one in outcomes))))  # noqa: T201 - the table of the page
    assert judgement.right, judgement
