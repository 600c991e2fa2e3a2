"""What a Spark connection says of drivers on a cluster, in the Spark provider's names if it has any."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.standalone import REST_PORT
from airflow_flinkstyle.jobs.target import INSTALLED

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class OnCluster:
    """The fields of a target that only clusters need."""

    agent: str = INSTALLED
    agent_path: str | None = None
    cluster_url: str | None = None
    web_url: str | None = None
    proxy_user: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)


def on_cluster(conn_id: str, extra: Mapping[str, Any], master: str) -> OnCluster:
    """Read the extra.

    Args:
        conn_id: Of the connection, for messages.
        extra: ``agent``, ``agent-path``, ``master-web-url``, ``proxy-user``, ``cluster-url`` for deployments
            of other packages, and the provider's ``queue``, ``principal``, ``rest-scheme``, ``rest-port``,
            ``yarn_resourcemanager_webapp_address``.
        master: As Spark writes it.

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
    return OnCluster(
        agent=extra.get("agent") or INSTALLED,
        agent_path=extra.get("agent-path") or None,
        cluster_url=extra.get("cluster-url")
        or extra.get("yarn_resourcemanager_webapp_address")
        or _rest_urls(extra, master),
        web_url=extra.get("master-web-url") or None,
        proxy_user=extra.get("proxy-user") or None,
        conf={name: str(value) for name, value in settings.items() if value},
    )


def _rest_urls(extra: Mapping[str, Any], master: str) -> str | None:
    if not master.startswith("spark://"):
        return None
    scheme, port = extra.get("rest-scheme") or "http", extra.get("rest-port") or REST_PORT
    hosts = (address.rsplit(":", 1)[0] for address in master.removeprefix("spark://").split(","))
    return ",".join(f"{scheme}://{host}:{port}" for host in hosts)
