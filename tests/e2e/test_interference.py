"""People and accidents interfere with migrations and upgrades in a real Airflow; every order is judged.

A short selection runs with the tests; ``make interference`` runs everything, at phases drawn by ``SEED``.
"""

from __future__ import annotations

import os
import random
import time
from itertools import cycle
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.migration.cutover import PHASES
from tests.e2e.interfered import InterferedAirflow
from tests.e2e.interference import HEAD, OF_A_RUN, OF_AIRFLOW, Interference

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.judge import StateReader
    from testbed.mirror import Mirror
    from tests.conftest import KafkaPair
    from tests.e2e.interference import Cutover

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.matrix]
OF_UPGRADES = ("standby", "precopy", "stop", "takeover-order", "takeover", "verify")
OF_MIGRATIONS = tuple(phase for phase in PHASES if phase not in ("running", "rollback"))
SHORT = (Interference(cutover="migration", what="kill all of Airflow", phase="takeover"),)
Round = tuple[Interference, ...]


def drawn(seed: int) -> list[Round]:
    """Return every kind of interference with a migration and with an upgrade, at phases drawn by the seed.

    The two run side by side, unless Airflow itself is killed, which each meets in its own phase. Each phase
    is drawn as often as the others, once more or less.
    """
    luck = random.Random(seed)  # noqa: S311
    phases = {"migration": _shuffled(luck, OF_MIGRATIONS), "upgrade": _shuffled(luck, OF_UPGRADES)}

    def case(cutover: Cutover, what: str) -> Interference:
        return Interference(cutover=cutover, what=what, phase=next(phases[cutover]))

    rounds: list[Round] = [(case("migration", what), case("upgrade", what)) for what in OF_A_RUN]
    rounds += [(case(cutover, what),) for what in OF_AIRFLOW for cutover in ("migration", "upgrade")]
    luck.shuffle(rounds)
    return rounds


def _shuffled(luck: random.Random, phases: tuple[str, ...]) -> Iterator[str]:
    return cycle(luck.sample(phases, len(phases)))


def chosen() -> list[Round]:
    """Return what ``make interference`` asks for, or the short selection."""
    runs = int(os.environ.get("FLINKSTYLE_INTERFERENCE", "0"))
    if not runs:
        return [(case,) for case in SHORT]
    found: list[Round] = []
    for cases in drawn(int(os.environ.get("SEED", "1"))):
        if sum(map(len, found)) < runs:
            found.append(cases)
    return found


def test_whatever_is_done_to_its_airflow_the_job_runs_on_one_side_and_its_producers_are_free(
    tmp_path: Path, kafka_pair: KafkaPair, mirror: Mirror, reader: StateReader
):
    rounds, begun_s = chosen(), time.monotonic()
    minutes = float(os.environ.get("MINUTES", "inf"))
    jobs = 3 + sum(case.cutover == "migration" for cases in rounds for case in cases)
    with InterferedAirflow(tmp_path, kafka_pair, reader, jobs=jobs) as interfered:
        for cases in rounds:
            if time.monotonic() - begun_s < minutes * 60:
                interfered.run(cases)
        interfered.judge_rest()
    rows = (one.row() for one in interfered.outcomes)
    print("\n".join((HEAD, *rows, *map(str, interfered.judgements))))  # noqa: T201 - the table of the page
    assert not interfered.faults, "\n".join(interfered.faults)
    assert all(one.right for one in interfered.judgements), interfered.judgements
