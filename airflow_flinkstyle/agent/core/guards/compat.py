"""Whether this driver's Spark can continue from a savepoint or a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.errors import NOT_STARTED
from airflow_flinkstyle.agent.core.guards.checks import read_positions
from airflow_flinkstyle.savepoint.compat import check_confs, check_version, require_compatible

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.spark import Spark
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.storage.base import ObjectStore


def require_for_savepoint(spark: Spark, manifest: Manifest, query: str) -> None:
    """Check a savepoint before it is restored: the version, and the settings of the query that is at hand.

    The job's other queries are checked when they start: a script may change its settings in between.

    Raises:
        FlinkstyleError: ``SPARK_INCOMPATIBLE``, naming all that would have to change.
    """
    snapshot = manifest.query(query)
    pinned = snapshot.pinned_confs if snapshot else {}
    findings = check_version(manifest.spark_version, spark.version)
    findings += check_confs(query, pinned, spark.given(pinned))
    require_compatible(f"savepoint {manifest.savepoint_id}", findings, state_after=NOT_STARTED)


def require_for_checkpoint(spark: Spark, query: str, checkpoint: ObjectStore) -> None:
    """Check the settings that a query's checkpoint pins, if there is one yet.

    Raises:
        FlinkstyleError: ``SPARK_INCOMPATIBLE``, naming all that would have to change.
    """
    newest = read_positions(checkpoint).newest
    pinned = newest.confs if newest else {}
    findings = check_confs(query, pinned, spark.given(pinned))
    require_compatible(f"the checkpoint of query {query}", findings, state_after=NOT_STARTED)
