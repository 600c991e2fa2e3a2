"""A token endpoint (OAuth 2.0 client credentials) that signs what it issues, on loopback."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

_VALID_S = 300


class TokenServer:
    """Answers ``POST /token`` to the clients it knows; Kafka's subject is the client's id."""

    def __init__(self, clients: Mapping[str, str]) -> None:
        from cryptography.hazmat.primitives.asymmetric import rsa

        self._clients = dict(clients)
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def url(self) -> str:
        """The token endpoint."""
        return f"http://127.0.0.1:{self._server.server_port}/token"

    def jwks(self) -> str:
        """Return the public key, as a broker wants it."""
        from jwt.algorithms import RSAAlgorithm

        key = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return json.dumps({"keys": [{**key, "kid": "testbed", "alg": "RS256", "use": "sig"}]})

    def _token(self, client: str) -> dict[str, Any]:
        import jwt

        now = int(time.time())
        claims = {"sub": client, "iat": now, "exp": now + _VALID_S, "scope": "kafka"}
        token = jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "testbed"})
        return {"access_token": token, "token_type": "Bearer", "expires_in": _VALID_S, "scope": "kafka"}

    def _client_of(self, authorization: str) -> str | None:
        client, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        return client if secret and self._clients.get(client) == secret else None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                client = server._client_of(self.headers.get("Authorization", ""))
                answer = server._token(client) if client else {"error": "invalid_client"}
                content = json.dumps(answer).encode()
                self.send_response(200 if client else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
