"""A stand-in of AWS's token service, and of an S3 that takes nothing but its unexpired tokens.

Tokens live a second or so, on a clock of the server's; what it says of their end may be later, as with a
client whose clock is behind. Requests with a good one are passed on to an S3 server that lets in everybody.
"""

from __future__ import annotations

import http.client
import threading
import time
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self
from urllib.parse import parse_qs

if TYPE_CHECKING:
    import ssl

    from testbed.s3 import S3Server

ROLE = "arn:aws:iam::000000000000:role/flinkstyle"
_DROPPED = frozenset({"authorization", "x-amz-security-token", "host", "connection", "expect"})
_GIVEN = """<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result>
<AssumedRoleUser><AssumedRoleId>AROA:{session}</AssumedRoleId><Arn>{role}</Arn></AssumedRoleUser>
<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>
<SessionToken>{token}</SessionToken><Expiration>{until}</Expiration></Credentials>
</{action}Result><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></{action}Response>"""
_ERROR = "<Error><Code>{code}</Code><Message>{code}</Message></Error>"


@dataclass(slots=True)
class Seen:
    """What happened, for the tests."""

    assumed: list[str] = field(default_factory=list)
    """Session names, in the order of the answers."""
    by_key: list[str] = field(default_factory=list)
    """Access keys of those who asked for a role; empty text for a web identity."""
    assumed_by_java: int = 0
    """Of those answers, how many went to the AWS SDK for Java: to S3A."""
    expired: int = 0
    """Requests that were refused because their token had expired."""
    served: int = 0


class TokenService:
    """Answers ``AssumeRole`` and ``AssumeRoleWithWebIdentity``, and passes S3 on; one address for all."""

    def __init__(
        self,
        upstream: S3Server,
        *,
        life_s: float = 1.0,
        told_s: float | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Prepare; nothing is answered yet.

        Args:
            upstream: Lets in everybody.
            life_s: How long a token is good.
            told_s: How long it is by what boto3 is told; None for the truth. Java's SDK is told the truth: it
                asks for no other token before the time that it was given.
            tls: Certificate for those who come by https through this server as their proxy.
        """
        self.upstream, self.life_s, self.told_s, self.tls = upstream, life_s, told_s, tls
        self.seen, self._ends = Seen(), dict[str, float]()
        self._lock = threading.Lock()
        service = self

        class Handler(_Handler):
            owner = service

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def endpoint(self) -> str:
        """URL of the token service, and of the S3 behind it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """Of that address."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def give(self, asked: dict[str, list[str]], by_key: str, *, to_java: bool = False) -> str:
        """Return the answer to one who assumes a role."""
        token, session = uuid.uuid4().hex, asked["RoleSessionName"][0]
        told_s = self.life_s if to_java or self.told_s is None else self.told_s
        until = datetime.now(UTC) + timedelta(seconds=told_s)
        with self._lock:
            self.seen.assumed_by_java += to_java
            self._ends[token] = time.monotonic() + self.life_s
            self.seen.assumed.append(session)
            self.seen.by_key.append(by_key)
        return _GIVEN.format(
            action=asked["Action"][0],
            role=asked["RoleArn"][0],
            session=session,
            key=f"ASIA{token[:16].upper()}",
            secret=f"secret-{token}",
            token=token,
            until=until.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        )

    def expire(self) -> None:
        """End every token that was given."""
        with self._lock:
            self._ends = dict.fromkeys(self._ends, time.monotonic())

    def fault(self, token: str | None) -> tuple[int, str] | None:
        """Return why a request is refused; None if it is not."""
        with self._lock:
            ends = self._ends.get(token or "")
            if ends is None:
                return 403, "InvalidToken"
            if time.monotonic() > ends:
                self.seen.expired += 1
                return 400, "ExpiredToken"
            self.seen.served += 1
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: TokenService

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command == "POST" and self.path == "/" and b"Action=AssumeRole" in body:
            asked = parse_qs(body.decode())
            credential = (self.headers.get("Authorization") or "").partition("Credential=")[2]
            to_java = "aws-sdk-java" in self.headers.get("User-Agent", "")
            given = self.owner.give(asked, credential.partition("/")[0], to_java=to_java)
            self._answer(200, given.encode())
            return
        fault = self.owner.fault(self.headers.get("X-Amz-Security-Token"))
        if fault is not None:
            self._answer(fault[0], _ERROR.format(code=fault[1]).encode())
            return
        self._pass_on(body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _handle

    def do_CONNECT(self) -> None:
        """Be the proxy, and the server behind it too, so that no port 443 is needed here."""
        if self.owner.tls is None:
            self.send_error(501, "no certificate was given for https")
            return
        self.send_response(200)
        self.end_headers()
        self.connection = self.owner.tls.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self.close_connection = False

    def finish(self) -> None:
        """Close what ``do_CONNECT`` put in the socket's place."""
        super().finish()
        self.connection.close()

    def _pass_on(self, body: bytes) -> None:
        link = http.client.HTTPConnection("127.0.0.1", self.owner.upstream.port, timeout=60)
        try:
            headers = {n: v for n, v in self.headers.items() if n.lower() not in _DROPPED}
            path = self.path.partition(f":{self.owner.port}")[2] if "://" in self.path else self.path
            link.request(self.command, path, body=body, headers=headers)
            answer = link.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in {"transfer-encoding", "connection", "date", "server"}:
                    self.send_header(name, value)
            if answer.getheader("Content-Length") is None:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        finally:
            link.close()

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""
