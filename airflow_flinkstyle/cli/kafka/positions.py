"""``flinkstyle offsets show|compare``: where a savepoint's positions stand."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from airflow_flinkstyle.cli.factories import repository_of
from airflow_flinkstyle.cli.kafka.options import KafkaConfigs, KafkaConns, all_clusters
from airflow_flinkstyle.cli.options import AsJson, Job, Root, SavepointId
from airflow_flinkstyle.cli.output import ExitCode, show, table
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.cluster import ClusterView, describe, existing_topics
from airflow_flinkstyle.kafka.groups import group_offsets
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.rewrite.lag import (
    Distance,
    PartitionLag,
    distances_between,
    distances_to,
    partition_lags,
)
from airflow_flinkstyle.rewrite.render import ALL_LISTED, MOST_LISTED
from airflow_flinkstyle.rewrite.route import sources_of
from airflow_flinkstyle.savepoint.manifest import Manifest
from airflow_flinkstyle.types import id_words

All = Annotated[bool, typer.Option("--all", help="List every partition, however many there are.")]


def show_offsets(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    kafka_configs: KafkaConfigs = None,
    kafka_conn_ids: KafkaConns = None,
    every: All = False,
    as_json: AsJson = False,
) -> None:
    """Show a savepoint's positions beside the live logs of the clusters that you name.

    Ends with 3 if the start guard would refuse one of them.
    """
    manifest = repository_of(root, job).read(savepoint_id)
    views = _views_of(manifest, all_clusters(kafka_configs, kafka_conn_ids))
    found = partition_lags(manifest, [view for view, _ in views])
    troubled = [one for one in found if one.trouble is not None]
    document = {
        "savepoint_id": savepoint_id,
        "job": job,
        "partitions": [_lag_fields(one) for one in found],
    }
    listed = found if every or len(found) <= ALL_LISTED else troubled[:MOST_LISTED]
    show(document, Group(*_lag_text(found, listed)), as_json=as_json)
    if troubled:
        raise typer.Exit(ExitCode.PARTLY)


def compare(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    savepoint: Annotated[str | None, typer.Option(help="Against this savepoint of the job.")] = None,
    group: Annotated[
        str | None, typer.Option(help="Against what this consumer group has committed on the cluster.")
    ] = None,
    ends: Annotated[bool, typer.Option("--ends", help="Against the ends of the logs.")] = False,
    kafka_configs: KafkaConfigs = None,
    kafka_conn_ids: KafkaConns = None,
    every: All = False,
    as_json: AsJson = False,
) -> None:
    """Tell how far a savepoint is behind another one, a group, or the logs' ends.

    In offsets: markers of transactions and what compaction removed count too. Ends with 3 if a partition
    cannot be compared.
    """
    if [savepoint is not None, group is not None, ends].count(True) != 1:
        raise typer.BadParameter("give one of --savepoint, --group and --ends")
    repository = repository_of(root, job)
    manifest = repository.read(savepoint_id)
    if savepoint is not None:
        against = f"savepoint {savepoint}"
        found = distances_between(manifest, repository.read(savepoint))
    else:
        against = f"group {group}" if group is not None else "the logs' ends"
        live = _one_or_more(_views_of(manifest, all_clusters(kafka_configs, kafka_conn_ids)))
        found = distances_to(
            manifest,
            [
                (view, view.ends if group is None else group_offsets(cluster, group, view.topics))
                for view, cluster in live
            ],
        )
    not_comparable = [one for one in found if one.behind is None]
    document = {
        "savepoint_id": savepoint_id,
        "against": against,
        "behind": sum(one.behind for one in found if one.behind is not None),
        "partitions": [_distance_fields(one) for one in found],
    }
    show(document, Group(*_distance_text(found, against, every=every)), as_json=as_json)
    if not_comparable:
        raise typer.Exit(ExitCode.PARTLY)


def _views_of(manifest: Manifest, clusters: Sequence[KafkaCluster]) -> list[tuple[ClusterView, KafkaCluster]]:
    """Describe the topics of the clusters that the savepoint reads; a topic that is gone is left out."""
    by_cluster: dict[str | None, set[str]] = {}
    for position in sources_of(manifest).values():
        by_cluster.setdefault(position.cluster_id, set()).update(position.offsets.topics)
    views = []
    for cluster in clusters:
        cluster_id = describe(cluster, ()).cluster_id
        if cluster_id not in by_cluster:
            raise BadInputError(
                f"{cluster} should be a cluster that savepoint {manifest.savepoint_id} reads "
                f"({', '.join(sorted(map(id_words, by_cluster))) or 'none'}), but is {id_words(cluster_id)}.",
                state_after="Nothing was changed.",
                remedy="Name the cluster that the savepoint was taken on.",
            )
        views.append((describe(cluster, by_cluster[cluster_id] & existing_topics(cluster)), cluster))
    return views


def _one_or_more(views: list[tuple[ClusterView, KafkaCluster]]) -> list[tuple[ClusterView, KafkaCluster]]:
    if not views:
        raise typer.BadParameter("name the cluster with --kafka-config or --kafka-conn-id")
    return views


def _lag_text(found: Sequence[PartitionLag], listed: Sequence[PartitionLag]) -> list[RenderableType]:
    troubles = Counter(one.trouble for one in found if one.trouble is not None)
    behind = [one.behind for one in found if one.behind is not None]
    summary = f"{len(found):,} partitions"
    if behind:
        summary += f", {sum(behind):,} offsets behind the ends of {len(behind):,}"
    if troubles:
        summary += "; " + ", ".join(f"{count:,} {name}" for name, count in troubles.most_common())
    columns = ("query", "source", "cluster", "topic", "#partition", "#next", "#start", "#end", "#behind")
    rows = [
        (
            *(one.query, one.source, one.cluster_id, one.topic, one.partition, one.offset),
            *((one.log.start, one.log.end) if one.log else (None, None)),
            one.behind,
            f"{one.trouble}: {one.deleted:,} offsets" if one.deleted else one.trouble or "",
        )
        for one in listed
    ]
    return [summary, table(*columns, "trouble", rows=rows), *_not_listed(len(found) - len(listed))]


def _distance_text(found: Sequence[Distance], against: str, *, every: bool) -> list[RenderableType]:
    known = [one.behind for one in found if one.behind is not None]
    summary = f"{sum(known):,} offsets behind {against} over {len(known):,} partitions"
    if len(known) < len(found):
        summary += f"; {len(found) - len(known):,} partitions cannot be compared"
    order = sorted(found, key=lambda one: (one.behind is not None, -abs(one.behind or 0)))
    listed = found if every or len(found) <= ALL_LISTED else order[:MOST_LISTED]
    columns = ("query", "source", "topic", "#partition", "#here", "#there", "#behind", "")
    rows = [
        (
            *(one.query, one.source, one.topic, one.partition, one.offset, one.other, one.behind),
            "" if one.same_log or None in (one.offset, one.other) else "another log",
        )
        for one in listed
    ]
    return [summary, table(*columns, rows=rows), *_not_listed(len(found) - len(listed))]


def _not_listed(partitions: int) -> list[RenderableType]:
    return [f"{partitions:,} partitions are not listed (--all)."] if partitions else []


def _lag_fields(one: PartitionLag) -> dict[str, object]:
    return {
        **{name: getattr(one, name) for name in PartitionLag.__slots__ if name != "log"},
        "start": one.log.start if one.log else None,
        "end": one.log.end if one.log else None,
        "behind": one.behind,
        "deleted": one.deleted,
    }


def _distance_fields(one: Distance) -> dict[str, object]:
    return {**{name: getattr(one, name) for name in Distance.__slots__}, "behind": one.behind}
