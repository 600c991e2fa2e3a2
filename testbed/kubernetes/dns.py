"""The node's DNS: ``python -m testbed.kubernetes.dns FOLDER``, a stand-in for CoreDNS.

``<service>.<namespace>.svc[.cluster.local]`` -> its addresses, asked of the API server at each query. It
shows nothing of CoreDNS' caching.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

from testbed.kubernetes.layout import NODE, certificate, kubeconfig

_API = f"https://{NODE}:6443"
_A, _IN, _POINTER = 1, 1, b"\xc0\x0c"
_FOUND, _NO_SUCH_NAME = 0x8580, 0x8583


class Resolver:
    """Knows the services of one cluster."""

    def __init__(self, folder: Path) -> None:
        users = json.loads(kubeconfig(folder, "admin").read_text())["users"]
        self._headers = {"Authorization": f"Bearer {users[0]['user']['token']}"}
        self._trust = ssl.create_default_context(cafile=str(certificate(folder)))

    def addresses(self, name: str) -> list[str]:
        """Return a service's address, or those of its pods if it has none of its own."""
        parts = name.lower().rstrip(".").removesuffix(".cluster.local").split(".")
        if len(parts) != 3 or parts[2] != "svc":
            return []
        service, namespace = parts[:2]
        with suppress(OSError):
            spec = self._ask(f"/api/v1/namespaces/{namespace}/services/{service}")["spec"]
            if spec.get("clusterIP") not in (None, "None"):
                return [str(spec["clusterIP"])]
            label = f"labelSelector=kubernetes.io/service-name%3D{service}"
            slices = self._ask(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?{label}")
            return [
                address
                for one in slices["items"]
                for end in one.get("endpoints") or ()
                if end.get("conditions", {}).get("ready", True)
                for address in end["addresses"]
            ]
        return []

    def _ask(self, path: str) -> Any:  # noqa: ANN401 - JSON
        request = urllib.request.Request(_API + path, headers=self._headers)  # noqa: S310
        with urllib.request.urlopen(request, context=self._trust, timeout=3) as answer:  # noqa: S310
            return json.load(answer)


def answer(query: bytes, resolver: Resolver) -> bytes:
    """Return the answer to one query."""
    at, labels = 12, []
    while length := query[at]:
        labels.append(query[at + 1 : at + 1 + length].decode())
        at += 1 + length
    end = at + 5
    kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
    found = resolver.addresses(".".join(labels))
    shown = found if kind == _A else []
    head = struct.pack(">HHHHH", _FOUND if found else _NO_SUCH_NAME, 1, len(shown), 0, 0)
    records = (
        _POINTER + struct.pack(">HHIH", _A, _IN, 1, 4) + socket.inet_aton(address) for address in shown
    )
    return query[:2] + head + query[12:end] + b"".join(records)


def main() -> None:
    """Answer for ever."""
    resolver = Resolver(Path(sys.argv[1]))
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((NODE, 53))
    while True:
        query, peer = server.recvfrom(512)
        with suppress(IndexError, UnicodeDecodeError, struct.error):
            server.sendto(answer(query, resolver), peer)


if __name__ == "__main__":
    main()
