"""What every operator on a streaming job shares: job, connection, and a key that all tries use."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_flinkstyle.hooks.assets import SAVEPOINTS, emit, savepoint_asset
from airflow_flinkstyle.hooks.failures import airflow_errors
from airflow_flinkstyle.hooks.keys import request_key, run_key
from airflow_flinkstyle.hooks.page_roots import savepoint_page
from airflow_flinkstyle.hooks.urls import NoUrl
from airflow_flinkstyle.links.savepoint import SavepointLink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import BaseOperatorLink, Context

    from airflow_flinkstyle.hooks.job import StreamingJobHook


log = logging.getLogger(__name__)


class StreamingJobOperator(BaseOperator):
    """Base of the operators.

    :param job: Name of the job, unique under the savepoint root. (templated)
    :param flinkstyle_conn_id: Connection with the savepoint root. (templated)
    """

    template_fields: Sequence[str] = ("job", "flinkstyle_conn_id")
    operator_extra_links: Sequence[BaseOperatorLink] = (SavepointLink(),)
    ui_color = "#e6ddf4"
    asks: ClassVar[tuple[str, ...]] = ()
    """Arguments that identify the request: a task that is cleared with other values makes another request."""

    def __init__(self, *, job: str, flinkstyle_conn_id: str = "flinkstyle_default", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.flinkstyle_conn_id = flinkstyle_conn_id
        self._savepoint_id: str | None = None
        """The savepoint that the task has shown."""

    @property
    def hook(self) -> StreamingJobHook:
        """A hook on the rendered connections."""
        from airflow_flinkstyle.hooks.job import StreamingJobHook

        return StreamingJobHook(self.flinkstyle_conn_id)

    def request_key(self, context: Context) -> str:
        """Return the key by which a retry finds what an earlier try has begun."""
        return request_key(context, {name: getattr(self, name) for name in self.asks})

    def resume_execution(
        self,
        next_method: str,
        next_kwargs: dict[str, Any] | None,
        context: Context,
    ) -> Any:  # noqa: ANN401 - as its base
        """Continue after the triggerer; fail with ``STEP_TIMEOUT`` if that has waited too long."""
        from airflow_flinkstyle.hooks.airflow_versions import TaskDeferralTimeout
        from airflow_flinkstyle.jobs.errors import STEP_TIMEOUT

        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            late = STEP_TIMEOUT.with_text(
                f"Task {self.task_id} of job {self.job} was expected to end before its time-out, found that "
                "the triggerer waited for it until then.",
                state_after="The driver finishes its request, or gives it up by itself.",
                remedy="Look at the job and its driver's log. A retry finds what was done; give it more time "
                "(timeout_s).",
            )
        with airflow_errors():
            raise late

    def show_savepoint(self, context: Context, savepoint_id: str | None) -> None:
        """Show the link to a savepoint while the task still runs, or log why there is none."""
        if savepoint_id is None:
            return
        self._savepoint_id = savepoint_id
        page = savepoint_page(self.flinkstyle_conn_id, self.job, savepoint_id)
        url = page or self.hook.savepoint_url(self.job, savepoint_id)
        if isinstance(url, NoUrl):
            command = f"flinkstyle savepoint show {savepoint_id} --job {self.job}"
            log.info("Savepoint %s has no link: %s. To see it: %s", savepoint_id, url.reason, command)
        else:
            SavepointLink.show(context, url)

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Return the task's job for OpenLineage."""
        from airflow_flinkstyle.hooks.lineage import JobLineage, as_openlineage

        return as_openlineage(JobLineage(job=self.job))

    def get_openlineage_facets_on_complete(
        self,
        task_instance: Any,  # noqa: ANN401 - Airflow's
    ) -> OperatorLineage[Any, Any]:
        """Return for OpenLineage what the job reads and writes, and the task's run and savepoint."""
        from airflow_flinkstyle.hooks.lineage import as_openlineage, job_lineage

        return as_openlineage(job_lineage(self.hook, self.job, self._savepoint_id))


class SavepointMaker(StreamingJobOperator):
    """Base of the operators that make savepoints: each is an asset event (``hooks.assets``)."""

    def __init__(self, *, outlets: Sequence[Any] | None = None, **kwargs: Any) -> None:
        super().__init__(outlets=[*(outlets or ()), SAVEPOINTS], **kwargs)

    def announce(self, context: Context, savepoint_id: str) -> None:
        """Let the task's success publish an event of the job's savepoints."""
        asset = savepoint_asset(self.job, self.flinkstyle_conn_id)
        emit(context, SAVEPOINTS, asset, {"job": self.job, "savepoint_id": savepoint_id})


__all__ = ["SavepointMaker", "StreamingJobOperator", "airflow_errors", "request_key", "run_key"]
