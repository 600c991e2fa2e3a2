"""What every deployment does alike: one life of a job on each, in the order of these tests.

``make test-clusters`` runs it, and counts what passed in docs/deployments.md.
"""

from __future__ import annotations

import json
import os
import re
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.deployments.base import Gone
from airflow_flinkstyle.jobs.errors import DriverFailedError, JobRunningError
from airflow_flinkstyle.jobs.packing import pack_agent
from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.jobs.status import Dead, Failed, Running
from airflow_flinkstyle.protocol.process import process_started
from testbed.clusters import ON_CLUSTERS, ON_KUBERNETES, PLACES, changed
from testbed.waiting import wait_until
from tests.clusters.conftest import SECRET_NAME
from tests.integration.detached_lab import COUNTS, TIMEOUT_S

if TYPE_CHECKING:
    from testbed.clusters import Cluster
    from tests.integration.cluster_lab import ClusterLab

pytestmark = pytest.mark.integration
everywhere = pytest.mark.parametrize("cluster", PLACES, indirect=True, scope="module")
on_clusters = pytest.mark.parametrize("cluster", ON_CLUSTERS, indirect=True, scope="module")
with_a_manager = pytest.mark.parametrize(
    "cluster", [place for place in PLACES if place not in ("detached", "ssh")], indirect=True, scope="module"
)
elsewhere = pytest.mark.parametrize("cluster", [*ON_CLUSTERS, "ssh"], indirect=True, scope="module")

FAILS = "import sys\nprint('before it fails', file=sys.stderr)\nimport no_such_module_of_anyone\n"
SHOWS_AGENT = COUNTS.replace(
    "import json, sys", "import airflow_flinkstyle, json, sys\nopen(sys.argv[1] + '.agent', 'w')"
    ".write(airflow_flinkstyle.__file__)"
)  # fmt: skip
HOLDERS = {
    "standalone": [r"spark/recovery/driver_driver-\S+"],
    **dict.fromkeys(
        ("yarn", "yarn-kerberos"),
        (
            r"yarn/state/FSRMStateRoot/RMAppRoot/application_\S+",
            r"yarn/staging/\S+/\.sparkStaging/application_\S+/__spark_conf__\.zip",
            r"yarn/local/\S+/__spark_conf__\.zip/__spark_conf__\.properties",
            r"yarn/local/\S+/__spark_conf__/__spark_conf__\.properties",
            r"yarn/local/\S+/launch_container\.sh",
            r"yarn/containers/application_\S+/launch_container\.sh",
        ),
    ),
    **dict.fromkeys(
        ON_KUBERNETES,
        (
            r"kubernetes/etcd/member/\S+",
            r"kubernetes/containerd/io\.containerd\.metadata\.v1\.bolt/meta\.db",
        ),
    ),
}
"""Files in which a driver's environment may stand, as docs/security.md tells."""


@everywhere
def test_driver_is_started_and_reports(cluster: Cluster, lab: ClusterLab):
    client = lab.client
    handle = client.starts.start(lab.spec(), lab.target(), claim_key="start")
    client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(1)
    assert handle.deployment == cluster.deployment
    assert client.view.status().heartbeat.state == "running"


@everywhere
def test_second_start_is_refused_and_a_repeated_one_finds_the_first(cluster: Cluster, lab: ClusterLab):
    client = lab.client
    with pytest.raises(JobRunningError, match="start"):
        client.starts.start(lab.spec(), lab.target(), claim_key="another")
    again = client.starts.start(lab.spec(), lab.target(), claim_key="start")
    assert (again.generation, client.view.board.newest_submit(again.generation)) == (1, 1)


@everywhere
def test_driver_whose_handle_was_lost_with_its_caller_is_found_and_not_started_again(
    cluster: Cluster, lab: ClusterLab
):
    client = lab.client
    slot = client.view.board.submit(1)
    assert slot is not None
    lost = replace(slot.value, state="asked", native_id={})
    client.view.board.put_submit(1, lost, seen=slot.version)
    other = replace(client, view=replace(client.view, clusters=type(client.view.clusters)()))
    assert isinstance(other.view.settled_status(), Running)
    other.drivers.ensure_running()
    assert client.view.board.newest_submit(1) == 1
    assert client.view.native_ids(client.view.run(1)), "nobody could find the driver any more"
    found = client.view.board.submit(1)
    assert found is not None
    client.view.board.put_submit(1, slot.value, seen=found.version)


@everywhere
def test_savepoint_is_taken_while_the_job_runs(cluster: Cluster, lab: ClusterLab):
    _, hot = lab.client.requests.wait(lab.client.requests.request_savepoint("hot"), timeout_s=TIMEOUT_S)
    assert hot.outcome == "done", hot.detail


@everywhere
def test_end_of_the_log_is_shown(cluster: Cluster, lab: ClusterLab):
    tail = lab.client.view.log_tail(lab.client.view.run(1), lines=6)
    if cluster.kdc:  # a node with Kerberos reads files by Hadoop's native library, which the tests have not
        assert re.search(r"not readable from here: .+ 500 .+; its page: \S+/node/containerlogs/", tail), tail
        return
    assert 3 <= len(tail.splitlines()) <= 8, tail
    assert "not readable" not in tail


@everywhere
def test_secret_is_on_no_command_line_and_in_no_file_but_those_that_are_documented(
    cluster: Cluster, lab: ClusterLab
):
    secret = lab.target().secret_env[SECRET_NAME].encode()
    environments, command_lines = 0, []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environments += secret in (process / "environ").read_bytes()
            if secret in (command := (process / "cmdline").read_bytes()):
                command_lines.append(command)
    assert environments, "no driver was given it"
    assert command_lines == []
    files = (path for path in cluster.folder.rglob("*") if path.is_file() and not path.is_symlink())
    holders = [str(path.relative_to(cluster.folder)) for path in files if secret in path.read_bytes()]
    allowed = HOLDERS.get(cluster.place, [])
    assert [path for path in holders if not any(re.fullmatch(rule, path) for rule in allowed)] == []


@everywhere
def test_driver_that_was_killed_is_found_dead_and_started_again_once(cluster: Cluster, lab: ClusterLab):
    batch = lab.until_committed_beyond(0)
    lab.kill_9()
    _relaunch(lab, batch)
    assert lab.client.view.board.newest_submit(1) == 2


@everywhere
def test_driver_that_is_frozen_is_replaced_by_one_and_does_nothing_when_it_wakes(
    cluster: Cluster, lab: ClusterLab
):
    batch, record = lab.until_committed_beyond(0), lab.newest()
    frozen = [lab.on_this_machine(pid) for pid in (record.pid, record.jvm_pid)]  # Python and its JVM
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        _relaunch(lab, batch)
    finally:
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    wait_until(
        "the one that was frozen ends", lambda: not any(map(process_started, frozen)), timeout_s=TIMEOUT_S
    )
    assert isinstance(lab.client.view.status(), Running)


@with_a_manager
def test_restart_of_the_cluster_manager_ends_no_driver_and_starts_none(cluster: Cluster, lab: ClusterLab):
    before = lab.jvm(), lab.client.view.board.newest_submit(1)
    cluster.restart_manager()
    lab.client.drivers.ensure_running()
    lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
    assert (lab.jvm(), lab.client.view.board.newest_submit(1)) == before


@everywhere
def test_stop_takes_a_savepoint_and_leaves_no_process(cluster: Cluster, lab: ClusterLab):
    driver = lab.jvm()
    stopped = lab.client.requests.stop("stop", savepoint=True, timeout_s=TIMEOUT_S)
    assert isinstance(stopped, Stopped)
    wait_until("the driver has ended", lambda: process_started(driver) is None, timeout_s=TIMEOUT_S)
    lab.judge()


@everywhere
def test_job_is_resumed_from_its_savepoint_and_counts_each_row_once(cluster: Cluster, lab: ClusterLab):
    client = lab.client
    [stopped] = [id_ for id_ in client.view.repository.ids() if id_ == client.view.repository.ids()[-1]]
    origin = FromSavepoint(savepoint_id=stopped)
    handle = client.starts.start(lab.spec(), lab.target(), claim_key="resume", origin=origin)
    client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
    assert isinstance(client.requests.stop("stop-2", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
    lab.judge()


@everywhere
def test_driver_that_is_told_to_end_commits_its_batch_and_is_started_again(cluster: Cluster, lab: ClusterLab):
    handle = lab.client.starts.start(lab.spec(), lab.target(), claim_key="told")
    lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
    os.kill(lab.jvm(), signal.SIGTERM)
    lab.until_told_to_end_and_again()
    assert isinstance(lab.client.requests.stop("stop-told", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
    lab.judge()


@elsewhere
def test_agent_comes_with_the_driver_where_it_is_not_installed(cluster: Cluster, lab: ClusterLab):
    client, packed = lab.client, pack_agent(cluster.folder / "agent")
    place = None if cluster.yarn else str(packed.archive)
    target = changed(lab.target(), agent="py-files", agent_path=place)
    handle = client.starts.start(lab.spec(SHOWS_AGENT, "shows_agent.py"), target, claim_key="packed")
    client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
    assert (
        f"{packed.archive.name}/airflow_flinkstyle" in lab.out.with_name(f"{lab.out.name}.agent").read_text()
    )
    assert isinstance(client.requests.stop("stop-3", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
    lab.judge()


@everywhere
def test_script_that_fails_as_it_begins_is_told_with_its_error_and_log(cluster: Cluster, lab: ClusterLab):
    client = lab.client
    handle = client.starts.start(lab.spec(FAILS, "fails.py"), lab.target(), claim_key="fails")
    with pytest.raises(DriverFailedError, match="no_such_module_of_anyone") as error:
        client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    assert cluster.kdc or "before it fails" in str(error.value), "its log, but where that is not readable"
    assert isinstance(client.view.status(), Failed)
    native_ids = client.view.native_ids(client.view.run(handle.generation))
    deployment = client.view.deployment_of(handle.generation, client.view.run(handle.generation).claim)
    wait_until(
        "the cluster knows that it has ended",
        lambda: all(isinstance(deployment.state(native_id), Gone) for native_id in native_ids),
        timeout_s=TIMEOUT_S,
    )


@on_clusters
def test_record_of_a_driver_names_the_clusters_id_and_the_agents_version(cluster: Cluster, lab: ClusterLab):
    record = lab.client.view.board.incarnation(1, 1)
    submit = lab.client.view.board.submit(1)
    assert record is not None
    assert submit is not None
    assert record.agent_version
    assert re.fullmatch(r"driver-\d+-\d+|application_\d+_\d+|flinkstyle-\w+-\d+", record.cluster_id)
    assert json.dumps(dict(submit.value.native_id))


def _relaunch(lab: ClusterLab, batch: int) -> None:
    """Wait until the driver counts as dead, and start the next one."""
    client = lab.client
    wait_until(
        "the driver counts as dead", lambda: isinstance(client.view.status(), Dead), timeout_s=TIMEOUT_S
    )
    client.drivers.ensure_running()
    client.drivers.wait_running(1, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(batch + 1)
