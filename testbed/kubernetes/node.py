"""The first process of the node: ``python -m testbed.kubernetes.node FOLDER``, in namespaces of its own.

It starts every program, starts those again that end, and reaps. When it dies, every process, mount and
interface of the node goes with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.kubernetes.layout import (
    API_PORT,
    BIN,
    HOST,
    IMAGES,
    NODE,
    NODE_NAME,
    PACKAGES,
    PAUSE_IMAGE,
    PODS,
    SERVICES,
    certificate,
    kubeconfig,
    write_users,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LINK = "k8s1"
"""This end of the link to the machine; ``cluster`` moves it in."""
_LIBRARIES = PACKAGES / "usr/lib/x86_64-linux-gnu"
_SOCKET = "/run/containerd/containerd.sock"
_KUBELET = "/var/lib/kubelet"
"""Of a short name: the kubelet puts sockets there, and below a test's folder their paths may be too long."""
_SYSCTLS = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)
"""The kubelet sets them for the whole machine: it is given files instead."""
_OF_MACHINE = "/usr/sbin:/usr/bin:/sbin:/bin"
_RESTART_S = 0.5


class Node:
    """All programs of a one-node cluster; their files are in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "log"
        self._commands: dict[int, tuple[str, Sequence[str]]] = {}
        self._env = {
            "HOME": str(folder),
            "PATH": f"{BIN}:{PACKAGES}/usr/bin:{PACKAGES}/usr/sbin:{PACKAGES}/sbin:{_OF_MACHINE}",
            **of_packages(),
            "GOMAXPROCS": "2",
        }

    def run(self) -> None:
        """Bring the node up, and keep it up until the namespace ends."""
        self._mount()
        self._join_network()
        self._write_files()
        tokens = write_users(self._folder)
        self._start_store_and_api(tokens)
        self._start("containerd", "containerd", "-c", str(self._folder / "containerd.toml"))
        self._until("the API server", self._api_is_ready)
        self._start_control()
        self._until("containerd", lambda: self._ctr("version"))
        for image in sorted(IMAGES.glob("*.tar")):
            self._ctr("-n", "k8s.io", "images", "import", str(image), check=True)
        self._start_kubelet()
        while True:
            self._reap()

    def _mount(self) -> None:
        for name in ("var-lib", "var-lib-work", "etcd", "kubelet", "cni", "sysctl", "plugins", "log/pods"):
            (self._folder / name).mkdir(parents=True)
        _call("mount", "--make-rshared", "/")
        _call("mount", "-t", "tmpfs", "tmpfs", "/run")
        for name in ("lock", "netns"):
            Path("/run", name).mkdir()
        layers = f"lowerdir=/var/lib,upperdir={self._folder}/var-lib,workdir={self._folder}/var-lib-work"
        _call("mount", "-t", "overlay", "-o", layers, "overlay", "/var/lib")
        _call("mount", "--bind", str(self._log), "/var/log")
        Path(_KUBELET).mkdir(exist_ok=True)
        _call("mount", "--bind", f"{self._folder}/kubelet", _KUBELET)
        for name in _SYSCTLS:
            file = self._folder / "sysctl" / name.replace("/", ".")
            file.write_text(Path("/proc/sys", name).read_text())
            _call("mount", "--bind", str(file), f"/proc/sys/{name}")

    def _join_network(self) -> None:
        _call("ip", "link", "set", "lo", "up")
        self._until("the link to the machine", lambda: _succeeds("ip", "link", "show", LINK))
        _call("ip", "addr", "add", f"{NODE}/30", "dev", LINK)
        _call("ip", "link", "set", LINK, "up")
        _call("ip", "route", "add", "default", "via", HOST)
        for name in ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables"):
            Path("/proc/sys", name).write_text("1")

    def _write_files(self) -> None:
        folder = self._folder
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": f"{folder}/addresses",
                "ranges": [[{"subnet": PODS}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
        (folder / "cni" / "10-pods.conflist").write_text(json.dumps(network))
        (folder / "resolv.conf").write_text(f"nameserver {NODE}\n")
        (folder / "containerd.toml").write_text(
            _CONTAINERD.format(folder=folder, packages=PACKAGES, pause=PAUSE_IMAGE)
        )
        (folder / "kubelet.json").write_text(json.dumps(_kubelet_settings(folder)))
        _call("openssl", "genrsa", "-out", str(folder / "accounts.key"), "2048")

    def _start_store_and_api(self, tokens: Path) -> None:
        store, accounts = "http://127.0.0.1:2379", str(self._folder / "accounts.key")
        self._start(
            *("etcd", "etcd", "--data-dir", f"{self._folder}/etcd", "--unsafe-no-fsync"),
            *("--listen-client-urls", store, "--advertise-client-urls", store),
        )
        self._start(
            *("kube-apiserver", "kube-apiserver", f"--etcd-servers={store}", "--bind-address=0.0.0.0"),
            *(f"--advertise-address={NODE}", f"--secure-port={API_PORT}", f"--token-auth-file={tokens}"),
            *(f"--cert-dir={certificate(self._folder).parent}", "--authorization-mode=Node,RBAC"),
            *(
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-cluster-ip-range={SERVICES}",
            ),
            *(f"--service-account-key-file={accounts}", f"--service-account-signing-key-file={accounts}"),
            *("--kubelet-preferred-address-types=InternalIP", "--enable-admission-plugins=NodeRestriction"),
        )

    def _start_control(self) -> None:
        self._start(
            *("controllers", "kube-controller-manager", self._as("system:kube-controller-manager")),
            *(f"--service-account-private-key-file={self._folder}/accounts.key", "--leader-elect=false"),
            *(f"--root-ca-file={certificate(self._folder)}", "--use-service-account-credentials=true"),
        )
        as_scheduler = self._as("system:kube-scheduler")
        own = as_scheduler.replace("--", "--authentication-"), as_scheduler.replace("--", "--authorization-")
        self._start("scheduler", "kube-scheduler", as_scheduler, *own, "--leader-elect=false")
        self._start(
            *("proxy", "kube-proxy", self._as("system:kube-proxy"), "--proxy-mode=iptables"),
            *(f"--cluster-cidr={PODS}", f"--hostname-override={NODE_NAME}", "--conntrack-max-per-core=0"),
            *("--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0"),
        )
        self._start("dns", sys.executable, "-m", "testbed.kubernetes.dns", str(self._folder))

    def _start_kubelet(self) -> None:
        self._start(
            *("kubelet", "kubelet", f"--config={self._folder}/kubelet.json"),
            *(self._as(f"system:node:{NODE_NAME}"), f"--hostname-override={NODE_NAME}", f"--node-ip={NODE}"),
            *(f"--root-dir={_KUBELET}", f"--cert-dir={self._folder}/kubelet-certificate"),
        )

    def _as(self, user: str) -> str:
        return f"--kubeconfig={kubeconfig(self._folder, user)}"

    def _start(self, name: str, *command: str) -> None:
        program = BIN / command[0]
        first = str(program) if program.exists() else command[0]
        # Python of this machine must not load Debian's libraries of the node.
        env = dict(os.environ) if name == "dns" else self._env
        with (self._log / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(  # noqa: S603 - the node's own programs
                [first, *command[1:]], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
            )
        self._commands[child.pid] = name, command

    def _reap(self) -> None:
        """Wait for the end of any process; start it again if it is the node's own."""
        pid, _ = os.wait()
        if own := self._commands.pop(pid, None):
            time.sleep(_RESTART_S)
            self._start(own[0], *own[1])

    def _api_is_ready(self) -> bool:
        command = ("kubectl", self._as("admin"), "get", "--raw", "/readyz")
        return subprocess.run(command, env=self._env, capture_output=True).stdout == b"ok"  # noqa: S603

    def _ctr(self, *arguments: str, check: bool = False) -> bool:
        command = ("ctr", "--address", _SOCKET, *arguments)
        return not subprocess.run(command, env=self._env, check=check, capture_output=not check).returncode  # noqa: S603

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not holds():
            if time.monotonic() > deadline:
                sys.exit(f"{what} was expected to answer within 120 s; its log is in {self._log}")
            time.sleep(0.1)


def of_packages() -> dict[str, str]:
    """Return where Debian's programs, which are not installed, find their own libraries."""
    return {"XTABLES_LIBDIR": str(_LIBRARIES / "xtables"), "LD_LIBRARY_PATH": str(_LIBRARIES)}


def _succeeds(*command: str) -> bool:
    return not subprocess.run(command, capture_output=True).returncode  # noqa: S603 - the node's own set-up


def _call(*command: str) -> None:
    subprocess.run(command, check=True)  # noqa: S603 - the node's own set-up


_CONTAINERD = """version = 2
root = "{folder}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{packages}/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{packages}/usr/sbin/runc"
        SystemdCgroup = false
"""


def _kubelet_settings(folder: Path) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # Only the machine itself reaches it.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [NODE],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{folder}/resolv.conf",
        "containerRuntimeEndpoint": f"unix://{_SOCKET}",
        "volumePluginDir": f"{folder}/plugins",
        "podLogsDir": f"{folder}/log/pods",
        "makeIPTablesUtilChains": False,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "nodeStatusUpdateFrequency": "5s",
    }


if __name__ == "__main__":
    Node(Path(sys.argv[1])).run()
