"""The savepoint that a request asks for, beside the newest one of the lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.run import capture

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.agent.core.board.inbox import Take
    from airflow_flinkstyle.agent.core.run.admission import Admission
    from airflow_flinkstyle.agent.core.run.driver import Driver
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.types import BatchId


class Taking:
    """Takes savepoints of this driver's queries; each shares its files with the one before."""

    def __init__(self, driver: Driver, admission: Admission) -> None:
        self._driver, self._admission = driver, admission

    def take(
        self,
        take: Take,
        *,
        stopped_at: Mapping[str, BatchId] | None,
        runs_on: bool = False,
    ) -> Manifest:
        """Take the savepoint that a request asks for, while its caller waits for it."""
        request = take.request
        if request.savepoint_id is None:
            raise AssertionError(f"request {request.request_id} names no savepoint")
        driver = self._driver
        self._admission.manifest = capture.take(
            driver.describe,
            driver.repository,
            *driver.queries.started_and_waiting(),
            savepoint_id=request.savepoint_id,
            spark_version=driver.spark_version,
            generation=driver.driver_run.generation,
            stopped_at=stopped_at,
            runs_on=runs_on,
            alignment=request.alignment,
            cut_id=request.cut_id,
            previous=self._admission.manifest,
            cancelled=take.cancelled.is_set,
            timeout_s=take.left_s(),
            progress=capture.ProgressWriter(driver.board, driver.driver_run.generation, request),
        )
        return self._admission.manifest
