"""An address that leads to a broker, and may lead to another one later, as a DNS name can."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from testbed.kafka import Broker

_CHUNK_BYTES = 65_536


class BootstrapName:
    """Forwards connections; clients then go on with the addresses that the broker advertises."""

    def __init__(self, broker: Broker) -> None:
        self._port = broker.port
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True, name="bootstrap-name")

    def __enter__(self) -> Self:
        """Start forwarding."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop accepting."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._server.close()

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def leads_to(self, broker: Broker) -> None:
        """Let new connections reach another broker."""
        self._port = broker.port

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._port))
            for source, target in ((client, broker), (broker, client)):
                threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
