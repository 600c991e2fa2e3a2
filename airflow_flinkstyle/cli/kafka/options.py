"""The options about Kafka clusters and the mirror between them; secrets stand in files or connections."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from airflow_flinkstyle.cli.kafka.airflow_connections import cluster_of_connection
from airflow_flinkstyle.cli.kafka.clusters import cluster_of
from airflow_flinkstyle.kafka.settings import Isolation, KafkaCluster

_FILE = "Properties file (librdkafka) of"
_CONN = "Airflow connection of type kafka of"

SourceConfig = Annotated[Path | None, typer.Option(help=f"{_FILE} the source cluster.", show_default=False)]
SourceConn = Annotated[
    str | None, typer.Option("--source-conn-id", help=f"{_CONN} the source cluster.", show_default=False)
]
TargetConfig = Annotated[Path | None, typer.Option(help=f"{_FILE} the target cluster.", show_default=False)]
TargetConn = Annotated[
    str | None, typer.Option("--target-conn-id", help=f"{_CONN} the target cluster.", show_default=False)
]
KafkaConfig = Annotated[
    Path | None, typer.Option("--kafka-config", help=f"{_FILE} the cluster.", show_default=False)
]
KafkaConn = Annotated[
    str | None, typer.Option("--kafka-conn-id", help=f"{_CONN} the cluster.", show_default=False)
]
KafkaConfigs = Annotated[
    list[Path] | None,
    typer.Option("--kafka-config", help=f"{_FILE} a cluster to look at; may be repeated."),
]
KafkaConns = Annotated[
    list[str] | None,
    typer.Option("--kafka-conn-id", help=f"{_CONN} a cluster to look at; may be repeated."),
]

SourceAlias = Annotated[
    str | None, typer.Option(help="What MirrorMaker calls the source.", show_default=False)
]
TargetAlias = Annotated[
    str | None, typer.Option(help="What MirrorMaker calls the target.", show_default=False)
]
Policy = Annotated[
    Literal["identity", "default"],
    typer.Option(help="MirrorMaker's replication policy: default puts the source alias before names."),
]
ConnectorName = Annotated[
    str, typer.Option(help="What you called the source connector on a Connect cluster.")
]
OffsetsTopic = Annotated[
    str, typer.Option(help="Connect's offset.storage.topic, if it is not MirrorMaker's own.")
]
SoleWriter = Annotated[
    bool,
    typer.Option(
        "--sole-writer", help="Only the mirror writes to its topics: equal records are its second copies."
    ),
]
KeepsOffsets = Annotated[
    bool,
    typer.Option(
        "--keeps-offsets", help="The mirror keeps offsets (Cluster Linking and the like); needs no alias."
    ),
]
IgnoredHeaders = Annotated[
    list[str] | None,
    typer.Option("--ignored-header", help="A header that the mirror adds or changes; may be repeated."),
]
MirrorIsolation = Annotated[Isolation, typer.Option(help="What MirrorMaker's consumer reads.")]


def one_cluster(config: Path | None, conn_id: str | None, which: str) -> KafkaCluster | None:
    """Return the cluster that was named, in whichever way; None if it was not."""
    if config is not None and conn_id is not None:
        raise typer.BadParameter(f"give --{which}-config or --{which}-conn-id, not both")
    if config is not None:
        return cluster_of(config, which)
    return cluster_of_connection(conn_id) if conn_id is not None else None


def the_cluster(config: Path | None, conn_id: str | None, which: str) -> KafkaCluster:
    """Return the cluster that must be named."""
    found = one_cluster(config, conn_id, which)
    if found is None:
        raise typer.BadParameter(f"give --{which}-config or --{which}-conn-id")
    return found


def all_clusters(configs: list[Path] | None, conn_ids: list[str] | None) -> list[KafkaCluster]:
    """Return every cluster that was named."""
    by_file = [cluster_of(config, config.name) for config in configs or ()]
    return [*by_file, *map(cluster_of_connection, conn_ids or ())]


def renames(pairs: list[str] | None) -> Mapping[str, str]:
    """Return old -> new from ``old=new``; several new names are separated by commas."""
    found = {}
    for pair in pairs or ():
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise typer.BadParameter(f"expected OLD=NEW, found {pair!r}", param_hint="--rename")
        found[old] = new
    return found
