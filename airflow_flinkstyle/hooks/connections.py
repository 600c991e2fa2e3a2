"""From Airflow connections to plain values. Secrets end here: in fields that are never shown or stored."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.errors import ConnectionMissingError
from airflow_flinkstyle.jobs.answers.values import is_true, seconds_or_none
from airflow_flinkstyle.jobs.deployments.survival import SETTING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Connection

    from airflow_flinkstyle.jobs.signing import Signer
    from airflow_flinkstyle.jobs.spec import SubmitTarget
    from airflow_flinkstyle.kafka.settings import KafkaCluster

_NOTHING = "Nothing was started or changed."
_SECRET_ENDS = (".password", ".secret", ".key.pem", ".oauthbearer.config", ".passphrase")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The settings of a ``flinkstyle`` connection."""

    savepoint_root: str
    """``s3://bucket/prefix`` or an absolute path."""
    aws_conn_id: str | None
    driver_aws_conn_id: str | None
    """Whose keys a driver gets; None: those of ``aws_conn_id``."""
    kafka_connections: tuple[str, ...] | None
    """The only Kafka connections that jobs may use; None: each that the caller of a start names, or that a
    signed record names."""
    spark_connections: tuple[str, ...] | None
    """The only Spark connections by which jobs may be started; None: each."""
    dags: tuple[str, ...] | None
    """The only DAGs whose tasks may act on this root, a ``*`` at an end for any; None: those that name the
    connection in their code."""
    previous_passwords: tuple[str, ...] = field(repr=False)
    """Signing keys before the password; still accepted."""
    checkpoint_root: str
    """As Spark writes it: ``s3a://...`` or a path."""
    lease_s: float
    spark_home: str | None
    python: str | None
    log_dir: str | None
    """None: ``flinkstyle`` below Airflow's own log folder."""
    producer_switch: str | None
    """``store``, ``manual`` or ``module:attribute``."""
    driver_may_end_with_worker: bool
    """Start drivers also where they end with the task or the worker that starts them."""
    supervise_drivers: bool
    """Start a supervisor beside each driver of the worker's machine."""
    class_archives: bool
    """Start drivers of the worker's machine from an archive of Spark's classes."""
    pulses: bool
    """Let drivers write pulses (``protocol.pulse``)."""

    @classmethod
    def of(cls, connection: Connection) -> Defaults:
        """Read the form's answers; empty ones count as not given."""
        from airflow_flinkstyle.jobs.spec import default_checkpoint_root

        require_type(connection, "flinkstyle")
        extra = connection.extra_dejson
        root = extra.get("savepoint_root")
        if not root:
            raise _incomplete(connection, "a savepoint_root (s3://bucket/prefix or an absolute path)")
        return cls(
            savepoint_root=str(root).rstrip("/"),
            aws_conn_id=extra.get("aws_conn_id") or None,
            driver_aws_conn_id=extra.get("driver_aws_conn_id") or None,
            kafka_connections=_names(extra.get("kafka_connections")) or None,
            spark_connections=_names(extra.get("spark_connections")) or None,
            dags=_names(extra.get("dags")) or None,
            previous_passwords=_names(extra.get("previous_passwords")),
            checkpoint_root=extra.get("checkpoint_root") or default_checkpoint_root(str(root)),
            lease_s=seconds_or_none(f"lease_s of {connection.conn_id}", extra.get("lease_s")) or 30.0,
            spark_home=extra.get("spark_home") or None,
            python=extra.get("python") or None,
            log_dir=extra.get("log_dir") or None,
            producer_switch=extra.get("producer_switch") or None,
            driver_may_end_with_worker=is_true(
                f"{SETTING} of {connection.conn_id}", extra.get(SETTING) or False
            ),
            supervise_drivers=is_true(
                f"supervise_drivers of {connection.conn_id}", extra.get("supervise_drivers") or False
            ),
            class_archives=is_true(
                f"class_archives of {connection.conn_id}", extra.get("class_archives") or False
            ),
            pulses=is_true(f"pulses of {connection.conn_id}", extra.get("pulses") or False),
        )


def signer(connection: Connection, defaults: Defaults) -> Signer:
    """Return the signer of starts, by the ``flinkstyle`` connection's password; without one nothing starts.

    Raises:
        JobError: ``SIGNING_KEY`` if a key is too short.
    """
    from airflow.sdk.log import mask_secret

    from airflow_flinkstyle.jobs.signing import Signer

    for key in (connection.password, *defaults.previous_passwords):
        if key:
            mask_secret(key)
    return Signer.of(connection.password, defaults.previous_passwords)


def require_allowed(defaults: Defaults, kind: str, conn_id: str) -> None:
    """Refuse a connection that jobs under this savepoint root may not use.

    Args:
        defaults: What the root's connection lists.
        kind: ``kafka`` or ``spark``.
        conn_id: Which one.

    Raises:
        BadInputError: Naming those that they may.
    """
    lists = {"kafka": defaults.kafka_connections, "spark": defaults.spark_connections}
    allowed = lists[kind]
    if allowed is not None and conn_id not in allowed:
        raise BadInputError(
            f"A {kind.capitalize()} connection that jobs under {defaults.savepoint_root} may use was "
            f"expected ({', '.join(allowed)}), found {conn_id}.",
            state_after=_NOTHING,
            remedy=f"Name one of these, or add it to {kind}_connections of the flinkstyle connection.",
        )


def kafka_cluster(connection: Connection) -> KafkaCluster:
    """Turn an apache-kafka connection into a cluster; its extra holds librdkafka's settings.

    The provider handles callbacks (``oauth_cb``): it imports those that its allow-list names, and has one
    for Amazon MSK and Google's managed Kafka.
    """
    from airflow.sdk.log import mask_secret

    from airflow_flinkstyle.kafka.settings import KafkaCluster

    require_type(connection, "kafka")
    for name, value in connection.extra_dejson.items():
        if name.endswith(_SECRET_ENDS) and value:
            mask_secret(str(value))
    config = {
        name: value if callable(value) else plain(value)
        for name, value in _with_callbacks(connection).items()
    }
    return KafkaCluster(name=connection.conn_id, config=config)


def _with_callbacks(connection: Connection) -> dict[str, Any]:
    """Return the settings as the provider gives them to its own clients."""
    from airflow.providers.apache.kafka.hooks.base import KafkaBaseHook

    from airflow_flinkstyle.hooks.airflow_versions import AirflowException

    class Settings(KafkaBaseHook):
        """The provider's hook, which returns the settings in place of a client."""

        @classmethod
        def get_connection(cls, conn_id: str) -> Connection:
            return connection

        def _get_client(self, config: dict[str, Any]) -> dict[str, Any]:
            return config

    if not connection.extra_dejson.get("bootstrap.servers"):
        return connection.extra_dejson
    try:
        return dict(Settings(connection.conn_id).get_conn)  # type: ignore[no-untyped-call]
    except (AirflowException, ImportError, ValueError) as error:
        raise BadInputError(
            f"The settings of connection {connection.conn_id} should be ones that the apache-kafka provider "
            f"can use, but it refuses them: {error}",
            state_after=_NOTHING,
            remedy="Correct the connection, or the provider's configuration that this names.",
        ) from error


def submit_target(
    connection: Connection, defaults: Defaults, *, secret_env: Mapping[str, str]
) -> SubmitTarget:
    """Turn an apache-spark connection into where and how a driver is started.

    Args:
        connection: Of type ``spark``: host and port name the master; the extra may hold ``deploy-mode``,
            ``spark-home``, ``python``, ``conf``, ``jars``, ``packages``, ``standby-cores``
            and ``standby-memory``; for drivers on a cluster see ``hooks.clusters``.
        defaults: The ``flinkstyle`` connection's, where the Spark connection's form has no field.
        secret_env: Credentials for the agent; they reach the driver through its environment only.
    """
    from airflow_flinkstyle.hooks.airflow_versions import conf as airflow_conf
    from airflow_flinkstyle.hooks.clusters import most_cores, on_cluster
    from airflow_flinkstyle.jobs.target import runs_elsewhere, target_of

    require_type(connection, "spark")
    extra = connection.extra_dejson
    python = extra.get("python") or defaults.python or os.environ.get("PYSPARK_PYTHON")
    if not python:
        raise _incomplete(connection, "python in its extra (or python in the flinkstyle connection)")
    master = _master(connection)
    conf = {str(name): plain(value) for name, value in (extra.get("conf") or {}).items()}
    where = {
        "deploy_mode": extra.get("deploy-mode") or extra.get("deploy_mode") or "client",
        "deployment": extra.get("deployment") or "",
    }
    if runs_elsewhere(where):
        fields, of_cluster = on_cluster(connection.conn_id, extra, master, connection_of)
        where, conf = {**where, **fields}, {**of_cluster, **conf}
    common = {
        "master": master,
        "spark_home": extra.get("spark-home") or extra.get("spark_home") or defaults.spark_home,
        "python": str(python),
        "conf": conf,
        "standby_cores": most_cores(connection.conn_id, extra.get("standby-cores")),
        "standby_memory": extra.get("standby-memory") or None,
        "jars": _names(extra.get("jars")),
        "packages": _names(extra.get("packages")),
        "log_dir": defaults.log_dir or f"{airflow_conf.get('logging', 'base_log_folder')}/flinkstyle",
    }
    return target_of({**common, **where}, secret_env=dict(secret_env))


def connection_of(conn_id: str, *, team: str | None = None) -> Connection:
    """Return a connection of Airflow.

    Args:
        conn_id: Its id.
        team: Team that may own it; tasks and triggers know their team without this.

    Raises:
        ConnectionMissingError: If there is none; a retry would not find it either.
    """
    from airflow.sdk import BaseHook

    from airflow_flinkstyle.hooks.airflow_versions import AirflowNotFoundException, connection_of_team

    try:
        if team is not None:
            of_team: Connection = connection_of_team(conn_id, team)
            return of_team
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise ConnectionMissingError.of(conn_id) from error


def _master(connection: Connection) -> str:
    """Return the master as the apache-spark provider reads it: ``local[2]``, ``yarn``, ``spark://host:port``."""
    host = connection.host or ""
    if not host:
        raise _incomplete(connection, "a host (local[2], yarn, spark://host, k8s://host)")
    master = f"{host}:{connection.port}" if connection.port else host
    if "://" not in master and connection.port:
        return f"spark://{master}"
    return master


def _names(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value or ()
    return tuple(part.strip() for part in parts if part.strip())  # type: ignore[attr-defined]


def plain(value: object) -> str:
    """Render a JSON value as Spark and librdkafka write it: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def require_type(connection: Connection, expected: str) -> None:
    """Refuse a connection of another type."""
    if connection.conn_type != expected:
        raise BadInputError(
            f"Connection {connection.conn_id} should be of type {expected!r}, but is of type "
            f"{connection.conn_type!r}.",
            state_after=_NOTHING,
            remedy=f"Name a connection of type {expected!r}, or change its type.",
        )


def _incomplete(connection: Connection, missing: str) -> BadInputError:
    return BadInputError(
        f"Connection {connection.conn_id} should name {missing}, but does not.",
        state_after=_NOTHING,
        remedy="Add it to the connection.",
    )
