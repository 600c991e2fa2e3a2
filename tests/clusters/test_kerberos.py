"""A YARN that wants to know who asks: by a ticket, for another user, and without one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.deployments.yarn import KEYTAB, PRINCIPAL
from airflow_flinkstyle.jobs.errors import ClusterLoginError
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.protocol.process import process_started
from testbed.clusters import changed
from testbed.kerberos import GATEWAY, USER
from testbed.waiting import wait_until
from tests.integration.cluster_lab import ClusterLab
from tests.integration.detached_lab import TIMEOUT_S

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.target import SubmitTarget
    from testbed.clusters import Cluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("cluster", ["yarn-kerberos"], indirect=True, scope="module"),
]


def by_ticket(target: SubmitTarget) -> SubmitTarget:
    """Return a target that names no keytab: the worker's own ticket tells who asks."""
    conf = {name: value for name, value in target.conf.items() if name not in (KEYTAB, PRINCIPAL)}
    return replace(target, conf=conf)


def test_driver_of_another_user_is_started_seen_and_killed_by_the_workers_ticket(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    assert cluster.kdc
    for name, value in cluster.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", str(cluster.kdc.ticket(GATEWAY)))
    lab = ClusterLab(cluster.folder / "proxy", cluster)
    target = by_ticket(changed(lab.target(), proxy_user=USER))
    handle = lab.client.starts.start(lab.spec(), target, claim_key="proxy")
    lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(1)
    assert cluster.yarn
    apps = cluster.yarn.leader.ask("apps?states=RUNNING")["apps"]["app"]
    assert [app["user"] for app in apps] == [USER]
    driver = lab.jvm()
    lab.client.drivers.end_driver(handle.generation)
    wait_until("YARN has ended it", lambda: process_started(driver) is None)
    wait_until("it does not run", lambda: not isinstance(lab.client.view.settled_status(), Running))
    lab.judge()


@pytest.mark.parametrize("ticket", ["none", "of a user who is not known"])
def test_worker_without_a_ticket_is_refused_before_anything_is_claimed(
    cluster: Cluster, ticket: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KRB5CCNAME", str(cluster.folder / "no-such-ticket"))
    lab = ClusterLab(cluster.folder / f"without-{ticket[:4]}", cluster)
    target = by_ticket(lab.target())
    if ticket != "none":
        target = replace(target, conf=lab.target(conf={PRINCIPAL: "nobody@TEST"}).conf)
    with pytest.raises(ClusterLoginError, match=r"no ticket for it could be got: .*airflow kerberos"):
        lab.client.starts.start(lab.spec(), target, claim_key="without")
    assert lab.client.view.board.generations() == []
