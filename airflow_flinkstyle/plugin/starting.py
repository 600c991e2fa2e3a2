"""What a start from a savepoint would meet, read for one person who asks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.start.dry import (
    NotJudged,
    Passes,
    Refuses,
    StartCheck,
    Verdict,
    check_positions,
    dry_start,
    last_reads,
)
from airflow_flinkstyle.plugin.views.savepoint_documents import dry_start_document
from airflow_flinkstyle.savepoint.errors import SavepointDamagedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.plugin.roots import OpenRoot

KAFKA_TIMEOUT_S = 5.0
"""How long a broker may take: a person waits, and a thread of the API server."""


def dry_run(
    root: OpenRoot, job: str, savepoint_id: str, listed: Mapping[str, Any], kafka_conn_ids: Sequence[str]
) -> dict[str, Any]:
    """Return what a start would meet.

    Args:
        root: Where the job is.
        job: Its name.
        savepoint_id: The savepoint.
        listed: The savepoint as ``answers.Savepoint``.
        kafka_conn_ids: Connections whose clusters are asked for positions.
    """
    hook, runs = root.hook(), root.client(job)
    manifest = runs.view.repository.read(savepoint_id)
    clusters = [_cluster(hook, conn_id) for conn_id in kafka_conn_ids]
    more = [
        StartCheck(about="the savepoint's files", verdict=_whole(listed)),
        *check_positions(manifest, clusters, last_reads(runs.view)),
    ]
    return dry_start_document(manifest, dry_start(runs.view, manifest), more, read_at_ms=now_ms())


def _cluster(hook: StreamingJobHook, conn_id: str) -> KafkaCluster:
    from airflow_flinkstyle.hooks.errors import ConnectionMissingError

    try:
        return replace(hook.kafka(conn_id), request_timeout_s=KAFKA_TIMEOUT_S)
    except ConnectionMissingError:
        raise BadInputError(
            f"A connection {conn_id} of type kafka was expected, found none.",
            state_after="No cluster was asked.",
            remedy="Name connections that there are.",
        ) from None


def _whole(listed: Mapping[str, Any]) -> Verdict:
    """Return how the newest check of the savepoint's files went."""
    if listed["damaged"]:
        return Refuses(
            code=SavepointDamagedError.code,
            problem=f"A check found it damaged: {listed['damaged']}",
            remedy="Start from another one; or import an export of this one, which brings its files back.",
        )
    if listed["verified"] is None:
        return NotJudged("It was never verified: a missing file is found when it is restored.")
    return Passes(f"They passed the newest check ({listed['verified']['level']}).")
