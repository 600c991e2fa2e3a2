"""Stop a job at a batch boundary, with a savepoint or without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.jobs.answers.values import is_true, one_of
from airflow_flinkstyle.operators.base import SavepointMaker, airflow_errors, request_key
from airflow_flinkstyle.types import Alignment, OnFailedSavepoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

SAVEPOINT_KEY = "savepoint_id"
"""XCom with the savepoint, pushed also if the stop itself failed."""


class StopStreamingJobOperator(SavepointMaker):
    """Stop a streaming job between two batches, so that no batch is run twice.

    Returns ``{"batches": ..., "savepoint_id": ..., "savepoint_error": ...}``. If the savepoint exists but
    the run did not close, the task fails with that message, and XCom ``savepoint_id`` has its id.

    :param savepoint: Take a savepoint of the stopped job. (templated)
    :param alignment: ``none`` stops each query after its batch; ``aligned`` stops all of them at the same
        Kafka offsets. (templated)
    :param drain: Read to where the inputs end at that moment, and stop there; hold the producers first to
        read everything. Implies ``aligned``. Windows that are open stay open in the state. (templated)
    :param on_failed_savepoint: What to do if the savepoint fails, for example because the store stays
        unreachable. ``keep_running``: the queries resume, and the task fails. ``close``: the job stops
        without a savepoint, in its checkpoint, and the task succeeds with ``savepoint_error`` in its result.
        (templated)
    :param timeout_s: How long draining and savepoint may take.
    """

    template_fields: Sequence[str] = (
        *SavepointMaker.template_fields,
        *("savepoint", "alignment", "drain", "on_failed_savepoint"),
    )

    def __init__(
        self,
        *,
        savepoint: bool | str = True,
        alignment: Alignment = "none",
        drain: bool | str = False,
        on_failed_savepoint: OnFailedSavepoint = "keep_running",
        timeout_s: float = 900.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.savepoint = savepoint
        self.alignment = alignment
        self.drain = drain
        self.on_failed_savepoint = on_failed_savepoint
        self.timeout_s = timeout_s

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask, wait, and fail if the savepoint exists but the job did not stop."""
        from airflow_flinkstyle.jobs.request import SavepointOnly, stop_incomplete
        from airflow_flinkstyle.jobs.request_slot import CutMode

        with airflow_errors():
            drain = is_true("drain", self.drain)
            mode = CutMode(
                alignment="aligned" if drain else one_of("alignment", self.alignment, get_args(Alignment)),
                drain=drain,
                on_failed_savepoint=one_of(
                    "on_failed_savepoint", self.on_failed_savepoint, get_args(OnFailedSavepoint)
                ),
            )
            outcome = self.hook.client(self.job).requests.stop(
                request_key(context),
                savepoint=is_true("savepoint", self.savepoint),
                mode=mode,
                timeout_s=self.timeout_s,
            )
            self.show_savepoint(context, outcome.savepoint_id)
        if outcome.savepoint_id is not None:
            context["ti"].xcom_push(key=SAVEPOINT_KEY, value=outcome.savepoint_id)
            self.announce(context, outcome.savepoint_id)
        if isinstance(outcome, SavepointOnly):
            with airflow_errors():
                raise stop_incomplete(self.job, outcome)
        if outcome.savepoint_error is not None and mode.on_failed_savepoint != "close":
            raise AirflowFailException(
                f"Job {self.job} has stopped without the savepoint that was asked for: "
                f"{outcome.savepoint_error} Its checkpoint holds where it is: take the savepoint of the "
                "stopped job (TakeSavepointOperator), or start it again."
            )
        if outcome.savepoint_error is not None:
            self.log.warning("The job has stopped without a savepoint: %s", outcome.savepoint_error)
        return {
            "batches": dict(outcome.batches),
            "savepoint_id": outcome.savepoint_id,
            "savepoint_error": outcome.savepoint_error,
        }
