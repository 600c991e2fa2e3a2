"""The operators: each names what to do, and the hook does it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_flinkstyle.operators.adopt import AdoptStreamingJobOperator as AdoptStreamingJobOperator
    from airflow_flinkstyle.operators.adopt import LeaveStreamingJobOperator as LeaveStreamingJobOperator
    from airflow_flinkstyle.operators.adopt_running import AdoptRunningJobOperator as AdoptRunningJobOperator
    from airflow_flinkstyle.operators.adopt_running import AskToEndOldJobOperator as AskToEndOldJobOperator
    from airflow_flinkstyle.operators.adopt_running import FinishAdoptionOperator as FinishAdoptionOperator
    from airflow_flinkstyle.operators.adopt_running import PrepareAdoptionOperator as PrepareAdoptionOperator
    from airflow_flinkstyle.operators.approval import ApproveMigrationOperator as ApproveMigrationOperator
    from airflow_flinkstyle.operators.choice import ChooseSavepointOperator as ChooseSavepointOperator
    from airflow_flinkstyle.operators.choice import ChooseSavepointsOperator as ChooseSavepointsOperator
    from airflow_flinkstyle.operators.compare import ApproveDifferenceOperator as ApproveDifferenceOperator
    from airflow_flinkstyle.operators.compare import CompareUpgradeOperator as CompareUpgradeOperator
    from airflow_flinkstyle.operators.compare import CompareVersionsOperator as CompareVersionsOperator
    from airflow_flinkstyle.operators.cut import CutJobsOperator as CutJobsOperator
    from airflow_flinkstyle.operators.drill import DrillRestoreOperator as DrillRestoreOperator
    from airflow_flinkstyle.operators.exchange import ExportSavepointOperator as ExportSavepointOperator
    from airflow_flinkstyle.operators.fail_back import BeginFailBackOperator as BeginFailBackOperator
    from airflow_flinkstyle.operators.measure import MeasureJobsOperator as MeasureJobsOperator
    from airflow_flinkstyle.operators.migrate import (
        MigrateStreamingJobOperator as MigrateStreamingJobOperator,
    )
    from airflow_flinkstyle.operators.migrate import PlanMigrationOperator as PlanMigrationOperator
    from airflow_flinkstyle.operators.migrate import PreflightMigrationOperator as PreflightMigrationOperator
    from airflow_flinkstyle.operators.migrate import SettleMigrationOperator as SettleMigrationOperator
    from airflow_flinkstyle.operators.migrate import VerifyMigrationOperator as VerifyMigrationOperator
    from airflow_flinkstyle.operators.replay import (
        ReplayStreamingJobOperator as ReplayStreamingJobOperator,
    )
    from airflow_flinkstyle.operators.retention import DisposeSavepointOperator as DisposeSavepointOperator
    from airflow_flinkstyle.operators.retention import PruneSavepointsOperator as PruneSavepointsOperator
    from airflow_flinkstyle.operators.retention import VerifySavepointOperator as VerifySavepointOperator
    from airflow_flinkstyle.operators.rewrite import PlanOffsetRewriteOperator as PlanOffsetRewriteOperator
    from airflow_flinkstyle.operators.rewrite import (
        RewriteSavepointOffsetsOperator as RewriteSavepointOffsetsOperator,
    )
    from airflow_flinkstyle.operators.roll_back import (
        RollBackStreamingJobOperator as RollBackStreamingJobOperator,
    )
    from airflow_flinkstyle.operators.roll_back import (
        ShowRollbackTargetsOperator as ShowRollbackTargetsOperator,
    )
    from airflow_flinkstyle.operators.rotate import RotateSavepointsOperator as RotateSavepointsOperator
    from airflow_flinkstyle.operators.savepoint import TakeSavepointOperator as TakeSavepointOperator
    from airflow_flinkstyle.operators.settle import (
        SettleStreamingJobOperator as SettleStreamingJobOperator,
    )
    from airflow_flinkstyle.operators.sources import ChangeSourcesOperator as ChangeSourcesOperator
    from airflow_flinkstyle.operators.start import StartStreamingJobOperator as StartStreamingJobOperator
    from airflow_flinkstyle.operators.stop import StopStreamingJobOperator as StopStreamingJobOperator
    from airflow_flinkstyle.operators.upgrade import (
        UpgradeStreamingJobOperator as UpgradeStreamingJobOperator,
    )
    from airflow_flinkstyle.operators.watch import WatchJobsOperator as WatchJobsOperator
    from airflow_flinkstyle.operators.watch import WatchStreamingJobOperator as WatchStreamingJobOperator

MODULES = {
    "AdoptRunningJobOperator": "adopt_running",
    "AdoptStreamingJobOperator": "adopt",
    "ApproveDifferenceOperator": "compare",
    "ApproveMigrationOperator": "approval",
    "AskToEndOldJobOperator": "adopt_running",
    "BeginFailBackOperator": "fail_back",
    "ChangeSourcesOperator": "sources",
    "ChooseSavepointOperator": "choice",
    "ChooseSavepointsOperator": "choice",
    "CompareUpgradeOperator": "compare",
    "CompareVersionsOperator": "compare",
    "CutJobsOperator": "cut",
    "DisposeSavepointOperator": "retention",
    "DrillRestoreOperator": "drill",
    "ExportSavepointOperator": "exchange",
    "FinishAdoptionOperator": "adopt_running",
    "LeaveStreamingJobOperator": "adopt",
    "MeasureJobsOperator": "measure",
    "MigrateStreamingJobOperator": "migrate",
    "PlanMigrationOperator": "migrate",
    "PlanOffsetRewriteOperator": "rewrite",
    "PreflightMigrationOperator": "migrate",
    "PrepareAdoptionOperator": "adopt_running",
    "PruneSavepointsOperator": "retention",
    "ReplayStreamingJobOperator": "replay",
    "RewriteSavepointOffsetsOperator": "rewrite",
    "RollBackStreamingJobOperator": "roll_back",
    "RotateSavepointsOperator": "rotate",
    "SettleMigrationOperator": "migrate",
    "SettleStreamingJobOperator": "settle",
    "ShowRollbackTargetsOperator": "roll_back",
    "StartStreamingJobOperator": "start",
    "StopStreamingJobOperator": "stop",
    "TakeSavepointOperator": "savepoint",
    "UpgradeStreamingJobOperator": "upgrade",
    "VerifyMigrationOperator": "migrate",
    "VerifySavepointOperator": "retention",
    "WatchJobsOperator": "watch",
    "WatchStreamingJobOperator": "watch",
}
"""Each operator and its module here; the provider's metadata lists them too."""


def __getattr__(name: str) -> object:
    """Import an operator's module when the operator is first asked for."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
    return found
