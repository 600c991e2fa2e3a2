"""What Airflow reads about this provider: its modules, the connection form, settings, the extra link."""

from __future__ import annotations

from typing import Any

from airflow_flinkstyle import __version__
from airflow_flinkstyle.operators import MODULES

_NAME = "Flinkstyle"
_DOCS = "https://github.com/airflow-flinkstyle/airflow-flinkstyle/blob/main/docs/README.md"
"""``Documentation`` of pyproject.toml."""
_HOW_TO = ("start", "rotate", "drill", "upgrade", "compare", "migrate", "alerts", "metrics", "page")
_OPTIONAL = ["string", "null"]


def _modules(room: str, *modules: str) -> dict[str, Any]:
    """Return the modules of a room, as Airflow wants them listed."""
    return {
        "integration-name": _NAME,
        "python-modules": [f"airflow_flinkstyle.{room}.{module}" for module in modules],
    }


def _text(
    label: str,
    description: str,
    *,
    required: bool = False,
    examples: tuple[str, ...] = (),
    secret: bool = False,
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "minLength": 1} if required else {"type": _OPTIONAL}
    schema |= {"examples": list(examples)} if examples else {}  # the form suggests them
    schema |= {"format": "password"} if secret else {}
    return {"label": label, "description": description, "schema": schema}


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata (entry point ``apache_airflow_provider``)."""
    return {
        "package-name": "airflow-flinkstyle",
        "name": _NAME,
        "description": "Flink-style savepoints for PySpark Structured Streaming jobs.",
        "versions": [__version__],
        "integrations": [
            {
                "integration-name": _NAME,
                "external-doc-url": _DOCS,
                "how-to-guide": [f"/docs/{page}.md" for page in _HOW_TO],
                "tags": ["service"],
            }
        ],
        "operators": [_modules("operators", *sorted(set(MODULES.values())))],
        "sensors": [_modules("sensors", "end", "freshness", "progress")],
        "hooks": [_modules("hooks", "job")],
        "triggers": [
            _modules(
                "triggers", "drill", "metrics", "new_savepoint", "progress", "run_end", "savepoint", "watch"
            )
        ],
        "asset-uris": [{"schemes": ["flinkstyle"], "handler": None}],
        "extra-links": [
            "airflow_flinkstyle.links.savepoint.SavepointLink",
            *(
                f"airflow_flinkstyle.links.driver.{name}"
                for name in ("SparkUiLink", "DriverLogLink", "ClusterLink")
            ),
        ],
        "config": {
            "flinkstyle": {
                "description": "The Savepoints page, and the jobs that DAGs look after.",
                "options": {
                    "page": {
                        "description": "Connections of type flinkstyle whose jobs the page shows, each "
                        "with the DAG whose permissions decide who may see them.",
                        "version_added": __version__,
                        "type": "string",
                        "example": "flinkstyle_default:take_savepoint, flinkstyle_billing:rotate_billing",
                        "default": "flinkstyle_default:take_savepoint",
                    },
                    "jobs": {
                        "description": "A YAML file or a folder of them that define jobs: rotate_savepoints, "
                        "watch_jobs and drill_jobs look after these, and forms suggest their names.",
                        "version_added": __version__,
                        "type": "string",
                        "example": "/jobs/definitions",
                        "default": "",
                    },
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
            examples=("aws_default",),
        ),
        "driver_aws_conn_id": _text(
            "AWS connection of drivers",
            "Amazon connection whose keys drivers get, which need fewer rights; empty for the one above.",
            examples=("aws_default",),
        ),
        "kafka_connections": _text(
            "Kafka connections",
            "The Kafka connections that jobs may use, separated by commas; empty for any that is named.",
            examples=("kafka_default",),
        ),
        "spark_connections": _text(
            "Spark connections",
            "The Spark connections by which jobs may be started, separated by commas; empty for any.",
            examples=("spark_default",),
        ),
        "dags": _text(
            "DAGs",
            "The DAGs that may act on this root, separated by commas, * at an end for any; empty for those "
            "that name this connection in their code.",
            examples=("take_savepoint, upgrade_job",),
        ),
        "previous_passwords": _text(
            "Previous signing keys",
            "Keys that jobs were started with before the one above, separated by commas; still accepted.",
            secret=True,
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
        "supervise_drivers": {
            "label": "Supervise drivers",
            "description": "Start a supervisor beside each driver on the worker's machine, which starts it "
            "again within a second once it was killed.",
            "schema": {"type": ["boolean", "null"], "default": False},
        },
        "class_archives": {
            "label": "Archives of Spark's classes",
            "description": "Start drivers on the worker's machine from an archive of Spark's classes, made "
            "in the background of the first start: the next ones start sooner.",
            "schema": {"type": ["boolean", "null"], "default": False},
        },
        "pulses": {
            "label": "Pulses",
            "description": "Let drivers write a sign of life where one listing shows those of all jobs, so "
            "that hundreds of jobs are watched within seconds; one more PUT in 5 s for each.",
            "schema": {"type": ["boolean", "null"], "default": False},
        },
    }
