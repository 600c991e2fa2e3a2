"""Upgrades of the orders job to the versions in ``scripts``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from testbed.keys import SIGNER

if TYPE_CHECKING:
    from testbed.scenario import OrdersScenario

SCRIPTS = Path(__file__).parent / "scripts"


def upgrade(
    scenario: OrdersScenario, script: str, *, first_commit_timeout_s: float = 180, **changes: Any
) -> Upgrade:
    """Return the upgrade to a version, under a key of its name."""
    values: dict[str, Any] = {
        "client": scenario.client,
        "journal": CutoverJournal(
            scenario.board.store, scenario.spec.name, script, UPGRADE_PHASES, signer=SIGNER
        ),
        "spec": replace(scenario.spec, script=str(SCRIPTS / f"{script}.py")),
        "target": scenario.target,
        "rehearse": Rehearse(batches=2, records=1000),
        "settings": CutoverSettings(first_commit_timeout_s=first_commit_timeout_s),
    }
    return Upgrade(**{**values, **changes})
