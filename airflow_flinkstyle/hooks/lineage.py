"""What a job reads and writes, and which run and savepoint a task was about, for OpenLineage.

OpenLineage's provider asks operators for it (``get_openlineage_facets_on_complete``); without that provider
it is not asked for, and nothing of the provider is imported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from airflow_flinkstyle.errors import FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow.providers.openlineage.extractors import OperatorLineage

    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.protocol.query_records import Writing
    from airflow_flinkstyle.protocol.records import Heartbeat

FACET: Final = "flinkstyle"
"""Name of our facet of a run."""
Place = tuple[str, str]
"""Namespace and name of a dataset, as OpenLineage names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLineage:
    """What is known of a job when a task ends."""

    job: str
    savepoint_id: str | None = None
    """The savepoint that the task was about."""
    generation: int | None = None
    """The run that the job has; None if it never had one."""
    batches: Mapping[str, int] = field(default_factory=dict)
    clusters: tuple[str, ...] = ()
    """Ids of the Kafka clusters that it reads."""
    inputs: tuple[Place, ...] = ()
    outputs: tuple[Place, ...] = ()


def job_lineage(hook: StreamingJobHook, job: str, savepoint_id: str | None) -> JobLineage:
    """Read the records of the job's newest run; what cannot be read is missing."""
    try:
        board = hook.board(job)
        current = board.current()
        generation = current.value.generation if current is not None else None
        slot = board.heartbeat(generation) if generation is not None else None
    except FlinkstyleError as error:
        hook.log.warning("OpenLineage gets no details of job %s: %s", job, error.problem)
        return JobLineage(job=job, savepoint_id=savepoint_id)
    if slot is None:
        return JobLineage(job=job, savepoint_id=savepoint_id, generation=generation)
    return lineage_of(job, savepoint_id, generation, slot.value)


def lineage_of(
    job: str, savepoint_id: str | None, generation: int | None, heartbeat: Heartbeat
) -> JobLineage:
    """Return the lineage in a heartbeat. Pure."""
    sources = [(query, name) for query in heartbeat.queries.values() for name in query.sources]
    inputs = {
        (f"kafka://{_first(query.reads[name].servers)}", topic)
        for query, name in sources
        if name in query.reads
        for topic in query.sources[name].topic_ids
    }
    outputs = {
        place for query in heartbeat.queries.values() if query.writes for place in places(query.writes)
    }
    return JobLineage(
        job=job,
        savepoint_id=savepoint_id,
        generation=generation,
        batches=heartbeat.batches(),
        clusters=tuple(sorted({one for query, name in sources if (one := query.sources[name].cluster_id)})),
        inputs=tuple(sorted(inputs)),
        outputs=tuple(sorted(outputs)),
    )


def places(writes: Writing) -> Iterable[Place]:
    """Return the dataset of a sink, as OpenLineage names Kafka topics, objects and files. Pure."""
    if writes.servers and writes.topic:
        yield f"kafka://{_first(writes.servers)}", writes.topic
    if writes.path:
        url = urlsplit(writes.path)
        scheme = {"s3a": "s3", "s3n": "s3"}.get(url.scheme, url.scheme or "file")
        if scheme == "file":
            yield "file", url.path
        else:
            yield f"{scheme}://{url.netloc}", url.path.strip("/") or "/"


def _first(servers: str) -> str:
    return servers.partition(",")[0].strip().rpartition("://")[2]


def as_openlineage(lineage: JobLineage) -> OperatorLineage[Any, Any]:
    """Return the lineage in OpenLineage's own types."""
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    from airflow_flinkstyle.hooks.lineage_facet import FlinkstyleRunFacet

    facet: Any = FlinkstyleRunFacet(
        job=lineage.job,
        generation=lineage.generation,
        savepointId=lineage.savepoint_id,
        batches=dict(lineage.batches),
        kafkaClusters=list(lineage.clusters),
    )
    return OperatorLineage(
        inputs=[InputDataset(namespace=namespace, name=name) for namespace, name in lineage.inputs],
        outputs=[OutputDataset(namespace=namespace, name=name) for namespace, name in lineage.outputs],
        run_facets={FACET: facet},
    )
