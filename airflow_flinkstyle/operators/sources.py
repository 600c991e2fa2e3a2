"""Give the sources of a savepoint's queries a new identity, before a changed script resumes from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.operators.base import SavepointMaker, StreamingJobOperator, airflow_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context


class ChangeSourcesOperator(SavepointMaker):
    """Write a savepoint whose queries have other sources: with new positions, added, removed, renamed.

    All state and all other sources are kept. Returns the new savepoint's id.

    :param savepoint_id: The savepoint to change; it stays. (templated)
    :param changes: Query -> what is to become of its sources, each called as in the savepoint: its place
        from 0, or its name. Any of ``remove``: ``["1"]``; ``order``: ``["1", "0"]``, those that stay as the
        new script has them; ``replace`` and ``add``: ``{"0": {"kafka_conn_id": "kafka_new", "topics":
        ["orders"], "start": "earliest"}}``, an added one called as in the new script; or ``rename``:
        ``{"0": "orders", "1": "returns"}``, for a script that gives each a name. (templated)
    :param preview: Only show what would be changed; returns the old savepoint's id.
    """

    template_fields: Sequence[str] = (*StreamingJobOperator.template_fields, "savepoint_id", "changes")

    def __init__(
        self,
        *,
        savepoint_id: str,
        changes: Mapping[str, Mapping[str, Any]],
        preview: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.savepoint_id = savepoint_id
        self.changes = changes
        self.preview = preview

    def execute(self, context: Context) -> str:
        """Find every position, show the changes, write, and return the new id."""
        from airflow_flinkstyle.jobs.answers.rules import source_changes
        from airflow_flinkstyle.rewrite.identity import change_sources, preview_changes

        with airflow_errors():
            hook, repository = self.hook, self.hook.repository(self.job)
            manifest = repository.read(self.savepoint_id)
            changes = source_changes(self.changes, manifest, repository, hook.kafka)
            for query, lines in preview_changes(manifest, repository, changes).items():
                self.log.info("Query %s:\n%s", query, "\n".join(lines))
            if self.preview:
                return self.savepoint_id
            changed = change_sources(manifest, repository, changes)
            self.show_savepoint(context, changed.savepoint_id)
        self.announce(context, changed.savepoint_id)
        self.log.info("Savepoint %s is %s with other sources", changed.savepoint_id, self.savepoint_id)
        return changed.savepoint_id
