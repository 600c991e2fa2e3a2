"""Kafka clusters by properties files: secrets stand in a file with its own permissions, not in a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.settings import KafkaCluster

if TYPE_CHECKING:
    from pathlib import Path


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
        raise _unusable(file, f"cannot be read ({type(error).__name__})") from error
    config = {}
    for number, line in enumerate(lines, start=1):
        setting, equals, value = line.strip().partition("=")
        if not setting or setting.startswith(("#", "!")):
            continue
        if not equals:
            raise _unusable(file, f"has no = in line {number}")
        config[setting.strip()] = value.strip()
    return KafkaCluster(name=name, config=config)


def _unusable(file: Path, found: str) -> BadInputError:
    return BadInputError(
        f"{file} should hold the settings of a Kafka cluster, name=value line by line, but it {found}.",
        state_after="Nothing was done.",
        remedy="Write bootstrap.servers=host:port and what else librdkafka needs into it, and make it "
        "readable for you alone.",
    )
