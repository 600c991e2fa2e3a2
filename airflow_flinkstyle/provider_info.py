"""What Airflow is told about this provider: the connection form, the hook, the extra link."""

from __future__ import annotations

from typing import Any

from airflow_flinkstyle import __version__

_OPTIONAL = ["string", "null"]


def _text(label: str, description: str, *, required: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1} if required else {"type": _OPTIONAL}
    return {"label": label, "description": description, "schema": schema}


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata (entry point ``apache_airflow_provider``)."""
    return {
        "package-name": "airflow-flinkstyle",
        "name": "Flinkstyle",
        "description": "Flink-style savepoints for PySpark Structured Streaming jobs.",
        "versions": [__version__],
        "hooks": [{"integration-name": "Flinkstyle", "python-modules": ["airflow_flinkstyle.hooks.job"]}],
        "extra-links": [
            "airflow_flinkstyle.links.savepoint.SavepointLink",
            *(
                f"airflow_flinkstyle.links.driver.{name}"
                for name in ("SparkUiLink", "DriverLogLink", "ClusterLink")
            ),
        ],
        "config": {
            "flinkstyle": {
                "description": "The Savepoints page.",
                "options": {
                    "page": {
                        "description": "Connections of type flinkstyle whose jobs the page shows, each "
                        "with the DAG whose permissions decide who may see them.",
                        "version_added": __version__,
                        "type": "string",
                        "example": "flinkstyle_default:take_savepoint, flinkstyle_billing:rotate_billing",
                        "default": "flinkstyle_default:take_savepoint",
                    }
                },
            }
        },
        "connection-types": [
            {
                "hook-class-name": "airflow_flinkstyle.hooks.job.StreamingJobHook",
                "hook-name": "Flinkstyle savepoints",
                "connection-type": "flinkstyle",
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "schema", "login", "port", "extra"],
                    "relabeling": {"password": "Signing key"},
                    "placeholders": {"savepoint_root": "s3://bucket/prefix"},
                },
                "conn-fields": _connection_fields(),
            }
        ],
    }


def _connection_fields() -> dict[str, Any]:
    """Return the form of a ``flinkstyle`` connection; ``hooks.connections.Defaults`` reads the answers."""
    return {
        "savepoint_root": _text(
            "Savepoint root",
            "Where jobs keep savepoints and talk to their drivers: s3://bucket/prefix or an absolute path.",
            required=True,
        ),
        "aws_conn_id": _text(
            "AWS connection",
            "Amazon connection for an s3:// root; empty uses the credentials of the environment.",
        ),
        "driver_aws_conn_id": _text(
            "AWS connection of drivers",
            "Amazon connection whose keys drivers get, which need fewer rights; empty for the one above.",
        ),
        "kafka_connections": _text(
            "Kafka connections",
            "The Kafka connections that jobs may use, separated by commas; empty for any that is named.",
        ),
        "previous_passwords": _text(
            "Previous signing keys",
            "Keys that jobs were started with before the one above, separated by commas; still accepted.",
        ),
        "checkpoint_root": _text(
            "Checkpoint root",
            "Below it every start of a job gets its own checkpoint location; empty for 'checkpoints' "
            "below the savepoint root.",
        ),
        "lease_s": {
            "label": "Lease (seconds)",
            "description": "A driver whose heartbeat has not changed for so long counts as dead.",
            "schema": {"type": ["number", "null"], "exclusiveMinimum": 0, "default": 30},
        },
        "spark_home": _text(
            "Spark home",
            "Spark's installation, if the Spark connection's extra names none; empty for its Python's own.",
        ),
        "python": _text(
            "Python of Spark",
            "Interpreter with PySpark and this package, in its own environment; empty for PYSPARK_PYTHON.",
        ),
        "log_dir": _text(
            "Driver logs", "Folder for the logs of detached drivers; empty for one below Airflow's logs."
        ),
        "producer_switch": _text(
            "Producer switch",
            "How a migration holds and releases producers: 'store' (they poll a record in the savepoint "
            "root), 'manual' (people do it), or module:attribute of a switch of yours.",
        ),
        "driver_may_end_with_worker": {
            "label": "Drivers may end with their worker",
            "description": "Start drivers too where they end with the task or the worker that starts them; "
            "otherwise that is refused (DIES_WITH_STARTER).",
            "schema": {"type": ["boolean", "null"], "default": False},
        },
    }
