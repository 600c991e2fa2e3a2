"""An address of this machine whose connections lead to another port."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from testbed.kafka import Broker

_CHUNK_BYTES = 65_536


class Forward:
    """Forwards connections to a port of this machine; subclasses decide what passes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True, name="forward")

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

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._port))
        for source, target, sent in ((client, server, True), (server, client, False)):
            threading.Thread(target=self._pump, args=(source, target, sent), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, sent: bool) -> None:
        """Pass bytes on until either side ends, then end both."""
        with contextlib.suppress(OSError):
            while (data := source.recv(_CHUNK_BYTES)) and self._pass(data, target, sent=sent):
                pass
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _pass(self, data: bytes, target: socket.socket, *, sent: bool) -> bool:
        """Pass bytes on, sent by the client or answered by the server; False ends the connection."""
        target.sendall(data)
        return True


class BootstrapName(Forward):
    """A broker's address that may lead to another broker later, as a DNS name can.

    Clients then go on with the addresses that the broker advertises.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.port)

    def leads_to(self, broker: Broker) -> None:
        """Let new connections reach another broker."""
        self._port = broker.port
