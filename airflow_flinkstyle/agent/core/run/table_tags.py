"""Versions of tables that savepoints name, kept alive as long as these are there, if the job asks for it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.savepoint.sinks import table_format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

KEEP: Final = "spark.flinkstyle.keepTableVersions"
log = logging.getLogger(__name__)


def keep_versions(
    board: JobBoard, repository: SavepointRepository, queries: Sequence[JobQuery], taken: Manifest
) -> None:
    """Tag the versions that a savepoint names, and free those of savepoints that were disposed of.

    Only a driver reaches the tables: what is disposed of is freed by the next savepoint. A savepoint does not
    fail because of it.
    """
    for query in queries:
        kind, saved = table_format(query.sink.name), taken.query(query.name)
        if kind is None or saved is None or query.session.setting(KEEP, "false") != "true":
            continue
        try:
            table = query.session.sink_table(kind, query.sink.table, query.sink.path)
            tags = table.tags()
            if tags is None:
                log.warning(
                    "Query %s: %s has no tags; its table goes back to savepoints only as long as versions "
                    "are kept: %s",
                    *(query.name, kind, table.kept_for()),
                )
                continue
            prefix = f"flinkstyle/{board.root.root_id[:8]}/{board.job}/{query.name}/"
            there = {prefix + savepoint_id for savepoint_id in repository.ids()}
            old = {tag for tag in tags if tag.startswith(prefix)} - there
            own, at = prefix + taken.savepoint_id, saved.sink_table
            new = {own: at.version} if at is not None and own not in tags else {}
            if old or new:
                table.set_tags(new, old)
        except Exception as error:  # noqa: BLE001  # Spark's, Java's, and the store's
            log.warning("Query %s: versions of its table were not kept: %s", query.name, error)
