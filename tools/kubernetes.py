"""A Kubernetes of one node for ``make test-kubernetes``, built once into ``.flinkstyle/kubernetes``.

``python3 -m tools.kubernetes``. Kubernetes and etcd are one program, built by Go from their modules, which
Go's checksum database vouches for; containerd, runc and what they need are Debian's packages, unpacked and
not installed. The image of Spark holds an entry point only: pods mount this machine's own files.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import sys
import tarfile
import time
from typing import TYPE_CHECKING

from tools.common import HOME, ROOT, Stamp, fail, remove, say
from tools.debian import unpack
from tools.go import Go
from tools.spark_operator import build_operator

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "1.34.4"
SOURCES = ROOT / "testbed" / "kubernetes"
ENTRYPOINT = ROOT / "examples" / "kubernetes" / "entrypoint.sh"
"""The one of the image that users build."""
CACHE = HOME / "kubernetes"
BIN, PACKAGES, IMAGES, _SCRATCH = (CACHE / name for name in ("bin", "packages", "images", "scratch"))
_OLDEST_GO = (1, 24)
PROGRAMS = (
    *("etcd", "kubectl", "kubelet", "kube-apiserver", "kube-controller-manager", "kube-proxy"),
    "kube-scheduler",
)
DEBIAN = (
    *("containerd", "runc", "containernetworking-plugins", "conntrack", "iptables", "tini", "libip4tc2"),
    *("libip6tc2", "libxtables12", "libnetfilter-conntrack3", "libnfnetlink0", "libnftnl11", "libmnl0"),
)
_IPTABLES = (
    "iptables",
    "iptables-save",
    "iptables-restore",
    "ip6tables",
    "ip6tables-save",
    "ip6tables-restore",
)
_STAGED = re.compile(r"^\s*(k8s\.io/\S+) => \./staging/", re.MULTILINE)
_LINKS = {name: f"usr/{name}" for name in ("bin", "lib", "lib64", "sbin")}
_USERS = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"


def main() -> int:
    """Build what is not there yet."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        fail(
            "A Debian on which this is root was expected, found none.",
            "Nothing was built.",
            "Run it as root on Debian 12, in a virtual machine or a container with all privileges.",
        )
    _build_node()
    build_operator(BIN, CACHE / "spark-operator")
    return 0


def _build_node() -> None:
    stamp = Stamp("kubernetes", VERSION, *DEBIAN, *sorted(SOURCES.glob("*.go")), ENTRYPOINT)
    if stamp.is_current:
        return
    started_s = time.monotonic()
    say(f"set-up: Kubernetes {VERSION}, built with Go (12 minutes of one core, once) ...")
    _build_programs()
    unpack("kubernetes", DEBIAN, PACKAGES)
    for name in _IPTABLES:
        _link(BIN / name, PACKAGES / "usr/sbin/xtables-legacy-multi")
    _make_images()
    stamp.set()
    say(f"set-up: Kubernetes done in {time.monotonic() - started_s:.0f} s")


def _build_programs() -> None:
    stamp = Stamp("kubernetes-programs", VERSION, SOURCES / "hyperkube.go", SOURCES / "pause.go")
    if stamp.is_current and (BIN / "hyperkube").exists():
        return
    remove(_SCRATCH)
    BIN.mkdir(parents=True, exist_ok=True)
    go = Go(_SCRATCH, oldest=_OLDEST_GO, what=f"Kubernetes {VERSION}")
    module = f"k8s.io/kubernetes@v{VERSION}"
    go.run("mod", "download", module)
    staged = _STAGED.findall((go.modules / module / "go.mod").read_text())
    staging = VERSION.replace("1.", "0.", 1)
    replaced = "".join(f"replace {name} => {name} v{staging}\n" for name in staged)
    project = go.project(SOURCES / "hyperkube.go", f"require k8s.io/kubernetes v{VERSION}\n{replaced}")
    go.run("mod", "tidy", folder=project)
    major, minor, _ = VERSION.split(".")
    told = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = "".join(f" -X k8s.io/component-base/version.{name}={value}" for name, value in told.items())
    go.run("build", "-trimpath", "-ldflags", f"-s -w{flags}", "-o", BIN / "hyperkube", ".", folder=project)
    pause = go.project(SOURCES / "pause.go", "")
    go.run("build", "-trimpath", "-o", BIN / "pause", ".", folder=pause)
    remove(_SCRATCH)
    stamp.set()


def _make_images() -> None:
    for name in PROGRAMS:
        _link(BIN / name, BIN / "hyperkube")
    IMAGES.mkdir(exist_ok=True)
    pause, spark = _Layer(), _Layer()
    pause.file("pause", (BIN / "pause").read_bytes())
    _write_image("pause", {"Entrypoint": ["/pause"], "User": "65535:65535"}, pause)
    for name, place in _LINKS.items():
        spark.link(name, place)
    for name in ("usr", "etc", "opt", "root", "tmp", "var/tmp"):
        spark.folder(name)
    spark.file("etc/passwd", _USERS.encode())
    spark.file("tini", (PACKAGES / "usr/bin/tini-static").read_bytes())
    spark.file("opt/entrypoint.sh", ENTRYPOINT.read_bytes())
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/"  # tini is in its root
    _write_image("spark", {"Entrypoint": ["/opt/entrypoint.sh"], "Env": [path]}, spark)


class _Layer:
    """The files of an image, as a tar."""

    def __init__(self) -> None:
        self._bytes = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._bytes, mode="w")  # noqa: SIM115 - closed in content()

    def file(self, name: str, data: bytes) -> None:
        """Add a program or a text."""
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), 0o755
        self._tar.addfile(info, io.BytesIO(data))

    def folder(self, name: str) -> None:
        """Add an empty folder."""
        info = tarfile.TarInfo(name)
        info.type, info.mode = tarfile.DIRTYPE, 0o1777 if name.endswith("tmp") else 0o755
        self._tar.addfile(info)

    def link(self, name: str, target: str) -> None:
        """Add a symbolic link."""
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.SYMTYPE, target
        self._tar.addfile(info)

    def content(self) -> bytes:
        """Return the tar."""
        self._tar.close()
        return self._bytes.getvalue()


def _write_image(name: str, config: dict[str, object], layer: _Layer) -> None:
    """Write an OCI image of one layer, as ``ctr images import`` reads it."""
    blobs: dict[str, bytes] = {}

    def put(kind: str, data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        media = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}

    content = layer.content()
    layers = [put("layer.v1.tar", content)]
    files = {"type": "layers", "diff_ids": [layers[0]["digest"]]}
    told = {"architecture": "amd64", "os": "linux", "config": config, "rootfs": files}
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": put("config.v1+json", json.dumps(told).encode()),
        "layers": layers,
    }
    entry = put("manifest.v1+json", json.dumps(manifest).encode())
    entry["annotations"] = {"io.containerd.image.name": f"localhost/{name}:test"}
    blobs["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    blobs["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    with tarfile.open(IMAGES / f"{name}.tar", "w") as out:
        for place, data in blobs.items():
            info = tarfile.TarInfo(place)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))


def _link(place: Path, target: Path) -> None:
    place.unlink(missing_ok=True)
    place.symlink_to(target)


if __name__ == "__main__":
    sys.exit(main())
