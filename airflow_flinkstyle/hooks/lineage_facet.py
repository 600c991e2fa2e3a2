"""Our facet of a run in OpenLineage's events; imported only where that provider is installed."""

from __future__ import annotations

from attrs import define
from openlineage.client.facet_v2 import RunFacet


@define
class FlinkstyleRunFacet(RunFacet):
    """Which job, run and savepoint a task was about; names as in OpenLineage's own facets."""

    job: str
    generation: int | None
    """The run that the job has."""
    savepointId: str | None
    batches: dict[str, int]
    """Query -> newest committed batch by the driver's last heartbeat; a savepoint may hold a later one."""
    kafkaClusters: list[str]
    """Ids of the clusters that the job reads."""
