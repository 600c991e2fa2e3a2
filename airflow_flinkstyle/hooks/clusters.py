"""A Spark connection's settings for drivers on a cluster, by the Spark provider's names if it has any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.kubernetes.api import CONTEXT, IN_CLUSTER, NAMESPACE
from airflow_flinkstyle.jobs.deployments.standalone import REST_PORT
from airflow_flinkstyle.jobs.packing import INSTALLED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.sdk import Connection


def on_cluster(
    conn_id: str, extra: Mapping[str, Any], master: str, connections: Callable[[str], Connection]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the extra: the fields of a target that clusters need, by their names, and settings of Spark.

    Args:
        conn_id: Of the connection, for messages.
        extra: ``agent``, ``agent-path``, ``master-web-url``, ``proxy-user``, ``kubernetes-conn-id``,
            ``spark-operator``, ``spark-application``, ``page-url``, ``ui-url``,
            ``cluster-url`` for deployments of other packages, and the provider's ``queue``, ``principal``,
            ``namespace``, ``rest-scheme``, ``rest-port``, ``yarn_resourcemanager_webapp_address``.
        master: As Spark writes it.
        connections: Returns a connection by its id.

    Raises:
        BadInputError: If the connection holds a keytab: a relaunch would not have it.
    """
    if extra.get("keytab"):
        raise BadInputError(
            f"A keytab in a file was expected, found one within connection {conn_id}.",
            state_after="Nothing was started or changed.",
            remedy="Put the file on every Airflow worker, and its path into conf of the extra, as "
            "spark.kerberos.keytab.",
        )
    settings = {"spark.yarn.queue": extra.get("queue"), "spark.kerberos.principal": extra.get("principal")}
    kube_config = None
    if master.startswith("k8s://"):
        named = extra.get("kubernetes-conn-id")
        kube_config, cluster = of_kubernetes(connections(named)) if named else (None, {})
        settings |= {**cluster, **({NAMESPACE: extra["namespace"]} if extra.get("namespace") else {})}
    cluster_url = extra.get("cluster-url") or extra.get("yarn_resourcemanager_webapp_address")
    fields = {
        "agent": extra.get("agent") or INSTALLED,
        "agent_path": extra.get("agent-path") or None,
        "cluster_url": cluster_url or _rest_urls(extra, master),
        "web_url": extra.get("master-web-url") or None,
        "proxy_user": extra.get("proxy-user") or None,
        "kube_config": kube_config,
        "spark_operator": extra.get("spark-operator") or "",
        "application": extra.get("spark-application") or {},
        "page_url": extra.get("page-url") or None,
        "ui_url": extra.get("ui-url") or None,
    }
    return fields, {name: str(value) for name, value in settings.items() if value}


def of_kubernetes(connection: Connection) -> tuple[str | None, dict[str, str]]:
    """Return the kubeconfig of a connection of the kubernetes provider, and settings of Spark.

    Raises:
        BadInputError: If it holds the kubeconfig itself, which no relaunch would have, or has another type.
    """
    if connection.conn_type != "kubernetes":
        raise BadInputError(
            f"A connection of type 'kubernetes' was expected, found that {connection.conn_id} is of type "
            f"{connection.conn_type!r}.",
            state_after="Nothing was started or changed.",
            remedy="Correct kubernetes-conn-id in the Spark connection's extra.",
        )
    extra = connection.extra_dejson
    if extra.get("kube_config"):
        raise BadInputError(
            f"A kubeconfig in a file was expected, found one within connection {connection.conn_id}.",
            state_after="Nothing was started or changed.",
            remedy="Put the file on every Airflow worker and triggerer, and its path into kube_config_path; "
            "or set in_cluster.",
        )
    named = {NAMESPACE: extra.get("namespace"), CONTEXT: extra.get("cluster_context")}
    place = IN_CLUSTER if extra.get("in_cluster") else extra.get("kube_config_path")
    return place or None, {name: str(value) for name, value in named.items() if value}


def _rest_urls(extra: Mapping[str, Any], master: str) -> str | None:
    if not master.startswith("spark://"):
        return None
    scheme, port = extra.get("rest-scheme") or "http", extra.get("rest-port") or REST_PORT
    hosts = (address.rsplit(":", 1)[0] for address in master.removeprefix("spark://").split(","))
    return ",".join(f"{scheme}://{host}:{port}" for host in hosts)


def most_cores(conn_id: str, value: object) -> float | None:
    """Return what a standby may take at most, ``standby-cores`` of a Spark connection's extra.

    Raises:
        BadInputError: If it is no number.
    """
    if value is None or value == "":
        return None
    try:
        return float(str(value))
    except ValueError as error:
        raise BadInputError(
            f"A number was expected as standby-cores of connection {conn_id}, found {value!r}.",
            state_after="Nothing was started or changed.",
            remedy="Correct it in the connection's extra.",
        ) from error
