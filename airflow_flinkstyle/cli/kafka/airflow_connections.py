"""Kafka clusters by Airflow connection ids; Airflow's own command reads them, with its backends and keys."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.settings import KafkaCluster

_TIMEOUT_S = 120


def cluster_of_connection(conn_id: str) -> KafkaCluster:
    """Return the cluster that a connection of type ``kafka`` describes.

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
