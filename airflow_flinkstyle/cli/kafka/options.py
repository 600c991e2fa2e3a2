"""The options about Kafka clusters and the mirror between them.

Secrets are in a properties file with its own permissions, or in an Airflow connection, not in a command.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.settings import Isolation, KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    typer.Option("--kafka-config", help=f"{_FILE} a cluster to read; may be repeated."),
]
KafkaConns = Annotated[
    list[str] | None,
    typer.Option("--kafka-conn-id", help=f"{_CONN} a cluster to read; may be repeated."),
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


def cluster_of(file: Path, name: str) -> KafkaCluster:
    """Return the cluster that a properties file describes.

    Args:
        file: Lines ``name=value`` in librdkafka's names, as kcat's ``-F``; empty lines and those that begin
            with ``#`` or ``!`` count as comments.
        name: How messages call the cluster.

    Raises:
        BadInputError: If the file cannot be read, or a line is none of these; no value is shown.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_file(file, f"cannot be read ({type(error).__name__})") from error
    config = {}
    for number, line in enumerate(lines, start=1):
        setting, equals, value = line.strip().partition("=")
        if not setting or setting.startswith(("#", "!")):
            continue
        if not equals:
            raise _bad_file(file, f"has no = in line {number}")
        config[setting.strip()] = value.strip()
    return KafkaCluster(name=name, config=config)


def _bad_file(file: Path, found: str) -> BadInputError:
    return BadInputError(
        f"{file} should hold the settings of a Kafka cluster, name=value line by line, but it {found}.",
        state_after="Nothing was done.",
        remedy="Write bootstrap.servers=host:port and what else librdkafka needs into it, and make it "
        "readable for you alone.",
    )


_TIMEOUT_S = 120


def cluster_of_connection(conn_id: str) -> KafkaCluster:
    """Return the cluster that a connection of type ``kafka`` describes, as Airflow's own command reads it.

    Raises:
        BadInputError: If Airflow is not installed here, knows no such connection, or it is of another
            type; no value of it is shown.
    """
    connection = _read(conn_id)
    if connection.get("conn_type") != "kafka":
        raise _unusable(conn_id, f"is of type {connection.get('conn_type')!r}")
    extra = connection.get("extra_dejson") or {}
    if "oauth_cb" in extra:
        raise _unusable(conn_id, "names oauth_cb, a function that only Airflow imports")
    return KafkaCluster(name=conn_id, config={str(name): _plain(value) for name, value in extra.items()})


def _read(conn_id: str) -> dict[str, Any]:
    beside = Path(sys.executable).with_name("airflow")
    airflow = str(beside) if beside.exists() else shutil.which("airflow")
    if airflow is None:
        raise _unusable(conn_id, "cannot be read: there is no command airflow here")
    try:
        done = subprocess.run(  # noqa: S603 - Airflow's own command, and an argument that is no option
            [airflow, "connections", "get", "--output", "json", "--", conn_id],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _unusable(conn_id, f"was not read by {airflow} within {_TIMEOUT_S} s") from error
    try:
        found = json.loads(done.stdout[done.stdout.index("[{") :])[0]
    except (ValueError, IndexError) as error:
        last = (done.stderr.strip() or "nothing").splitlines()[-1]
        raise _unusable(conn_id, f"was not found (airflow said: {last[:200]})") from error
    return dict(found)


def _plain(value: object) -> str:
    text = str(value)  # Airflow prints every value as text
    return text.lower() if text in ("True", "False") else text


def _unusable(conn_id: str, found: str) -> BadInputError:
    return BadInputError(
        f"Airflow connection {conn_id} should be of type 'kafka', but it {found}.",
        state_after="Nothing was done.",
        remedy="Correct the connection, run this where Airflow is set up, or give the settings of the "
        "cluster as a properties file.",
    )
