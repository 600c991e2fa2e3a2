"""``flinkstyle mirror status``: how far a copy of topics on another cluster is."""

from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.console import Group, RenderableType

from airflow_flinkstyle.cli.kafka.options import (
    ConnectorName,
    MirrorIsolation,
    OffsetsTopic,
    Policy,
    SourceConfig,
    SourceConn,
    TargetConfig,
    TargetConn,
    the_cluster,
)
from airflow_flinkstyle.cli.options import AsJson
from airflow_flinkstyle.cli.output import ExitCode, moment, note, show, table
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.mirror.status import MirrorStatus, mirror_status


def status(
    source_alias: Annotated[str, typer.Option(help="What MirrorMaker calls the source.", show_default=False)],
    target_alias: Annotated[str, typer.Option(help="What MirrorMaker calls the target.", show_default=False)],
    source_config: SourceConfig = None,
    source_conn_id: SourceConn = None,
    target_config: TargetConfig = None,
    target_conn_id: TargetConn = None,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", help="A topic of the source, may be repeated; default: all mirrored ones."),
    ] = None,
    policy: Policy = "identity",
    connector_name: ConnectorName = "MirrorSourceConnector",
    offsets_topic: OffsetsTopic = "",
    syncs_on: Annotated[
        Literal["source", "target"], typer.Option(help="MirrorMaker's offset-syncs.topic.location.")
    ] = "source",
    isolation: MirrorIsolation = "read_committed",
    groups: Annotated[
        bool, typer.Option("--groups", help="Also list where each consumer group would resume.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show per partition what MirrorMaker has mirrored, and per group where it would continue.

    Ends with 3 if a partition is behind or missing on the target.
    """
    mirror = MirrorSettings(
        source_alias=source_alias,
        target_alias=target_alias,
        connector_name=connector_name,
        offsets_topic=offsets_topic,
        replication_policy=policy,
        syncs_on=syncs_on,
        isolation=isolation,
    )
    source = the_cluster(source_config, source_conn_id, "source")
    target = the_cluster(target_config, target_conn_id, "target")
    found = mirror_status(source, target, mirror, topics or None)
    for topic in found.absent:
        note(f"There is no topic {topic}: nothing is known from it.")
    document = {"in_sync": found.in_sync, "newest_sync_age_s": found.newest_sync_age_s, **asdict(found)}
    show(document, Group(*_tables(found, groups=groups)), as_json=as_json)
    if not found.in_sync:
        raise typer.Exit(ExitCode.PARTLY)


def _tables(found: MirrorStatus, *, groups: bool) -> list[RenderableType]:
    behind = sum(not one.in_sync for one in found.partitions)
    age_s = found.newest_sync_age_s
    parts: list[RenderableType] = [
        f"{len(found.partitions) - behind:,} of {len(found.partitions):,} partitions are in sync; "
        f"newest offset sync: {'none' if age_s is None else f'{age_s:,.0f} s ago'}",
        table(
            *("topic", "#partition", "on the target", "#source end", "#target end", "#mirrored to", "#lag"),
            *("#newest sync", "written (UTC)"),
            rows=[
                (
                    *(one.topic, one.partition, one.target_topic, one.source_end, one.target_end),
                    *(one.mirrored_to, one.lag_records),
                    f"{one.last_sync.upstream} -> {one.last_sync.downstream}" if one.last_sync else None,
                    moment(one.last_sync.noted_at_ms) if one.last_sync else None,
                )
                for one in found.partitions
            ],
        ),
    ]
    if groups:
        parts.append(_group_table(found))
    return parts


def _group_table(found: MirrorStatus) -> RenderableType:
    return table(
        *("group", "topic", "#partition", "#next on the source", "#on the target", "written (UTC)"),
        *("#unread on the source", "#unread on the target"),
        rows=[
            (
                *(one.group, one.topic, one.partition, one.upstream, one.downstream),
                *(moment(one.noted_at_ms), one.unread_on_source, one.unread_on_target),
            )
            for one in found.groups
        ],
        title="\nWhere MirrorMaker would let groups resume (by its checkpoints; not proved)",
    )
