"""A Kubernetes of one node, started and stopped from this machine's side; needs root."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testbed import paths
from testbed.kubernetes import apache_operator, operator
from testbed.kubernetes.accounts import accounts
from testbed.kubernetes.layout import API, BIN, HOST, NODE, NODE_NAME, PODS, SPARK_IMAGE, kubeconfig
from testbed.kubernetes.node import LINK, of_packages
from testbed.process import Service
from testbed.spark import spark_paths
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OWN_LINK = "k8s0"
_UNSHARE = (
    "unshare",
    "--mount",
    "--net",
    "--pid",
    "--ipc",
    "--uts",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
_CHAINS = ("FORWARD", "INPUT")
"""What passes through the node, and what is for the node itself, as its API server is."""
_GROUPS = ("kubepods", "k8s.io")


class Kubernetes:
    """One node with everything on it; one at a time on a machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._apache: apache_operator.ApacheOperator | None = None
        self.service = Service(
            "Kubernetes",
            [*_UNSHARE, sys.executable, "-m", "testbed.kubernetes.node", folder],
            log_file=folder / "log" / "node.log",
            ready=self._is_ready,
            cwd=paths.ROOT,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def master(self) -> str:
        """The address of the API server, as Spark writes it."""
        return f"k8s://{API}"

    def kubeconfig(self, user: str = "airflow") -> Path:
        """Return the kubeconfig of one of ``layout.USERS``."""
        return kubeconfig(self.folder, user)

    @property
    def conf(self) -> dict[str, str]:
        """Settings with which Spark runs on it: pods see this machine's programs, and a test's folder."""
        settings = {
            "spark.kubernetes.container.image": SPARK_IMAGE,
            "spark.kubernetes.container.image.pullPolicy": "Never",
            "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
            "spark.executor.instances": "1",
            "spark.executor.cores": "1",
        }
        for role in ("driver", "executor"):
            settings[f"spark.kubernetes.{role}.request.cores"] = "0.1"
            env = "spark.kubernetes.driverEnv" if role == "driver" else "spark.executorEnv"
            settings |= {f"{env}.SPARK_HOME": str(spark_paths().spark_home)}
            settings |= {f"{env}.JAVA_HOME": str(paths.java_home())}
            for number, folder in enumerate(self._seen_by_pods()):
                volume = f"spark.kubernetes.{role}.volumes.hostPath.v{number}"
                settings |= {f"{volume}.mount.path": folder, f"{volume}.options.path": folder}
        return settings

    def _seen_by_pods(self) -> list[str]:
        settings_of_java = [str(path) for path in Path("/etc").glob("java-*")]
        places = ["/usr", *settings_of_java, sys.base_prefix, str(paths.ROOT), str(self.folder.parent)]
        return list(dict.fromkeys(place for place in places if not _is_below("/usr", place)))

    def told(self, namespace: str = "default") -> str:
        """Return what the API server and the pods say, for a test that fails."""
        of = ("-n", namespace)
        parts = [self.kubectl("get", "pods", "-o", "wide", *of), self.kubectl("get", "events", *of)[-4000:]]
        for pod in self.get("pods", *of)["items"]:
            name = pod["metadata"]["name"]
            with contextlib.suppress(subprocess.CalledProcessError):
                parts.append(f"{name}\n{self.kubectl('logs', name, *of)[-4000:]}")
        return "\n".join(parts)

    def start(self) -> None:
        """Start the node, and return when it takes pods."""
        self.service.launch()
        try:
            self._link()
            self.service.wait_ready()
            self.apply(*accounts())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything on the node; the cgroups that it leaves are removed."""
        if self._apache is not None:
            self._apache.service.stop()
        self.service.kill()
        # The kernel may keep the node's network for minutes, for connections that end slowly, or drop it now.
        _call("ip", "link", "delete", _OWN_LINK, check=False)
        wait_until("the link to the node is gone", lambda: not _has_link(), timeout_s=30)
        for group in _GROUPS:
            for place in Path("/sys/fs/cgroup").glob(f"*/{group}"):
                wait_until("the node's processes have ended", partial(_removed, place), timeout_s=30)

    def kubectl(self, *arguments: str, text: str | None = None, user: str = "admin") -> str:
        """Return what kubectl says.

        Raises:
            subprocess.CalledProcessError: If it fails.
        """
        command = [str(BIN / "kubectl"), "--kubeconfig", str(self.kubeconfig(user)), *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)  # noqa: S603
        return done.stdout

    def get(self, *what: str) -> Any:  # noqa: ANN401 - JSON
        """Return an object, or a list of them."""
        return json.loads(self.kubectl("get", *what, "-o", "json"))

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Make objects be as they are given."""
        for one in objects:
            self.kubectl("apply", "-f", "-", text=json.dumps(one))

    def install_operator(self) -> None:
        """Install Kubeflow's Spark operator, and return when it is ready."""
        for definition in operator.definitions():
            self.kubectl("apply", "--server-side", "-f", str(definition))
        self.apply(*operator.objects(self._seen_by_pods()))
        try:
            self.kubectl(
                *("rollout", "status", "deployment", operator.NAME, "-n", operator.NAMESPACE),
                "--timeout=180s",
            )
        except subprocess.CalledProcessError as error:
            raise AssertionError(f"the operator is not ready: {self.told(operator.NAMESPACE)}") from error

    def install_apache_operator(self) -> None:
        """Start the Apache Spark project's operator beside the node, and return when it is ready."""
        for definition in apache_operator.definitions():
            self.kubectl("apply", "--server-side", "-f", str(definition))
        self.apply(*apache_operator.objects())
        self._apache = apache_operator.ApacheOperator(self.folder)
        self._apache.start()

    def kill(self, program: str) -> None:
        """Kill a program of the node, which starts it again."""
        for pid in self.processes(program):
            os.kill(pid, signal.SIGKILL)

    def freeze(self, program: str) -> None:
        """Let a program of the node answer nobody; ``thaw`` lets it go on."""
        for pid in self.processes(program):
            os.kill(pid, signal.SIGSTOP)

    def thaw(self, program: str) -> None:
        """Let a frozen program go on."""
        for pid in self.processes(program):
            os.kill(pid, signal.SIGCONT)

    @contextlib.contextmanager
    def without_way(self, pod: str, port: int) -> Iterator[None]:
        """Let nothing pass from a pod to a port of any host, as a network that splits."""
        address = self.get("pod", pod)["status"]["podIP"]
        rule = ("-s", address, "-p", "tcp", "--dport", str(port), "-j", "DROP")
        for chain in _CHAINS:
            self._iptables("-I", chain, *rule)
        try:
            yield
        finally:
            for chain in _CHAINS:
                self._iptables("-D", chain, *rule)

    def restart_api(self) -> None:
        """Kill the API server, and return when it answers again."""
        before = set(self.processes("kube-apiserver"))
        self.kill("kube-apiserver")
        wait_until(
            "there is another API server", lambda: not before.issuperset(self.processes("kube-apiserver"))
        )
        wait_until("the API server answers", self._is_ready)

    def processes(self, program: str) -> list[int]:
        """Return this machine's process ids of a program of the node."""
        own = f"{BIN / program}\0".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "cmdline").read_bytes().startswith(own):
                    found.append(int(process.name))
        return found

    def _link(self) -> None:
        wait_until("the node has a first process", lambda: any(self._children()), timeout_s=30)
        inside = str(next(self._children()))
        _call("ip", "link", "add", _OWN_LINK, "type", "veth", "peer", "name", LINK, "netns", inside)
        _call("ip", "addr", "add", f"{HOST}/30", "dev", _OWN_LINK)
        _call("ip", "link", "set", _OWN_LINK, "up")
        _call("ip", "route", "add", PODS, "via", NODE)

    def _iptables(self, *arguments: str) -> None:
        """Change what passes on the node, or from its pods to elsewhere."""
        network = f"--net=/proc/{next(self._children())}/ns/net"
        command = ("nsenter", network, str(BIN / "iptables"), "-w", *arguments)
        subprocess.run(command, check=True, env={**os.environ, **of_packages()})  # noqa: S603

    def _children(self) -> Iterator[int]:
        file = Path(f"/proc/{self.service.pid}/task/{self.service.pid}/children")
        with contextlib.suppress(OSError):
            yield from map(int, file.read_text().split())

    def _is_ready(self) -> bool:
        try:
            node = self.get("node", NODE_NAME)
            self.get("serviceaccount", "default")
        except subprocess.CalledProcessError:
            return False
        conditions = {one["type"]: one["status"] for one in node["status"]["conditions"]}
        return conditions.get("Ready") == "True" and not node["spec"].get("taints")


def _is_below(folder: str, place: str) -> bool:
    return place != folder and Path(place).is_relative_to(folder)


def _removed(group: Path) -> bool:
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    return not group.exists()


def _has_link() -> bool:
    """Return whether this machine's end of the link is there."""
    return Path("/sys/class/net", _OWN_LINK).exists()


def _call(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check)  # noqa: S603 - the node's own set-up
