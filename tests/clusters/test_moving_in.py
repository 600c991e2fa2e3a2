"""A job of plain Spark is adopted while it runs on a cluster, ended by what its people end it with there."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.adoption.ending import EndByCommand, EndProcess
from airflow_flinkstyle.jobs.status import Running
from testbed.kafka import Broker
from testbed.kubernetes.layout import BIN, HOST
from testbed.ports import LOOPBACK
from testbed.spark import spark_paths
from testbed.waiting import PATIENCE_S, wait_until
from tests.integration.plain_lab import CONF, SCRIPT, Plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.adoption.ending import Ending
    from airflow_flinkstyle.jobs.spec import SubmitTarget
    from testbed.clusters import Cluster, Place

pytestmark = pytest.mark.e2e
WHERE: tuple[Place, ...] = ("standalone", "yarn", "kubernetes", "spark-application")
OLD = "plain-old"
_CLI = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"


class OnCluster(Plain):
    """A job whose drivers run on a cluster, those of plain Spark and those of this package."""

    def __init__(self, cluster: Cluster, broker: Broker) -> None:
        super().__init__(cluster.folder / "plain", broker, f"plain-on-{cluster.place}")
        self.cluster, self.own = cluster, self.folder / "ck"
        self.client = replace(
            self.client, view=replace(self.client.view, base_env={**os.environ, **cluster.env})
        )

    def target(self) -> SubmitTarget:
        return self.cluster.target(super().target())

    def run_old(self) -> Ending:
        """Let plain Spark run it as people do there; return what ends it."""
        if self.cluster.standalone is not None:
            return self._on_standalone()
        if self.cluster.yarn is not None:
            return self._on_yarn()
        return self._by_operator() if self.cluster.operator else self._in_pod()

    def _on_standalone(self) -> EndProcess:
        """Its driver is a process of this machine, its executors are the cluster's."""
        return EndProcess(pid=self._submit({}, mode="client").pid)

    def _on_yarn(self) -> EndByCommand:
        yarn = self.cluster.yarn
        assert yarn is not None
        process = self._submit({"spark.yarn.submit.waitAppCompletion": "false"})
        assert process.wait(PATIENCE_S) == 0, self.logs()
        found = re.search(r"Submitted application (\S+)", self.logs())
        assert found, self.logs()
        cli = [*map(str, yarn.daemon(_CLI, yarn.conf_dir)), "application"]
        look = f"{' '.join(cli)} -status {found[1]} | grep -Eq 'State : (KILLED|FINISHED|FAILED)'"
        return EndByCommand(command=[*cli, "-kill", found[1]], gone=["sh", "-c", look])

    def _in_pod(self) -> EndByCommand:
        alone = {
            "spark.kubernetes.driver.pod.name": OLD,
            "spark.kubernetes.submission.waitAppCompletion": "false",
        }
        assert self._submit(alone).wait(PATIENCE_S) == 0, self.logs()
        return self._ended("delete", "pod", OLD, "--ignore-not-found")

    def _by_operator(self) -> EndByCommand:
        """Kubeflow's operator keeps it running, until it is suspended."""
        assert self.cluster.kubernetes is not None
        self.cluster.kubernetes.apply(self._application())
        suspend = json.dumps({"spec": {"suspend": True}})
        return self._ended("patch", "sparkapplication", OLD, "--type=merge", f"--patch={suspend}")

    def _ended(self, *what: str) -> EndByCommand:
        """Return a command of kubectl's, after which the old driver's pod must be gone."""
        assert self.cluster.kubernetes is not None
        kubectl = [str(BIN / "kubectl"), "--kubeconfig", str(self.cluster.kubernetes.kubeconfig("admin"))]
        wait = [*kubectl, "wait", "--for=delete", f"pod/{OLD}", "--timeout=60s"]
        return EndByCommand(command=[*kubectl, *what], gone=wait)

    def _conf(self, more: Mapping[str, str]) -> dict[str, str]:
        spark = spark_paths()
        pythons = {
            "spark.pyspark.python": str(spark.python),
            "spark.pyspark.driver.python": str(spark.python),
        }
        return {**self.target().conf, **pythons, **more}

    def _submit(self, more: Mapping[str, str], mode: str = "cluster") -> Any:  # noqa: ANN401
        target = self.target()
        env, script = dict(self.cluster.env), str(SCRIPT)
        if self.cluster.kubernetes is not None:
            script = f"local://{SCRIPT}"  # the image has it; another one would need a place to upload it to
            env["KUBECONFIG"] = str(self.cluster.kubernetes.kubeconfig())
        options = ("--master", target.master, "--deploy-mode", mode, "--name", OLD)
        return self.submit(self.own, "on", options=options, conf=self._conf(more), env=env, script=script)

    def _application(self) -> dict[str, Any]:
        conf = self._conf(CONF)
        return {
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "metadata": {"name": OLD, "namespace": "default"},
            "spec": {
                "type": "Python",
                "mode": "cluster",
                "sparkVersion": "4.0.0",
                "image": conf["spark.kubernetes.container.image"],
                "mainApplicationFile": f"local://{SCRIPT}",
                "arguments": self.arguments(self.own, "on"),
                "sparkConf": conf,
                "driver": {"podName": OLD},
                "executor": {},
                "restartPolicy": {"type": "Always"},
            },
        }


@pytest.mark.parametrize("cluster", WHERE, indirect=True, scope="module")
def test_job_of_plain_spark_that_runs_on_the_cluster_is_adopted_and_each_row_counted_once(cluster: Cluster):
    host = LOOPBACK if cluster.kubernetes is None else HOST
    with Broker("old", cluster.folder / "old", host=host) as broker:
        plain = OnCluster(cluster, broker)
        try:
            plain.produce(500)
            ending = plain.run_old()
            wait_until("it commits", lambda: plain.has_committed(plain.own), timeout_s=PATIENCE_S)
            adoption = plain.adoption(plain.own, ending)
            with plain.fed():
                done = adoption.run()
            print("down for", done.down_s, "s;", done.ended, "; stood", done.stood_s)  # noqa: T201  (a figure)
            plain.produce(200)
            plain.judge()
            assert isinstance(plain.client.view.status(), Running)
            assert done.down_s is not None
        except BaseException:
            print(plain.logs(), cluster.told())  # noqa: T201
            raise
        finally:
            plain.close()
