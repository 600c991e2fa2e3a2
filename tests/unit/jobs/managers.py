"""Cluster managers as HTTP servers that say what they were told, and a driver to submit to them."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.spec import submission_of
from tests.unit.jobs.specs import a_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.jobs.deployments.base import Submission
    from airflow_flinkstyle.jobs.spec import SubmitTarget


@dataclass
class Manager:
    """Answers each path with what it was told; remembers what it was asked."""

    url: str
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    asked: list[tuple[str, str, bytes]] = field(default_factory=list)
    wants_to_know: str = ""
    """What it names in ``WWW-Authenticate`` as long as nobody says who asks."""
    said_who: list[str] = field(default_factory=list)
    leads_to: str = ""
    """Where it sends those whom it has let in."""
    once: dict[str, tuple[int, bytes]] = field(default_factory=dict)

    def says_once(self, path: str, body: object) -> None:
        """Answer so the next time, and afterwards as told before."""
        self.once[path] = (200, json.dumps(body).encode())

    def says(self, path: str, body: object, *, status: int = 200) -> None:
        self.answers[path] = (status, body if isinstance(body, bytes) else json.dumps(body).encode())


@contextmanager
def a_manager() -> Iterator[Manager]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            manager.asked.append((self.command, self.path, body))
            if who := self.headers.get("Authorization"):
                manager.said_who.append(who)
            elif manager.wants_to_know:
                self.send_response(401)
                self.send_header("WWW-Authenticate", manager.wants_to_know)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if manager.leads_to:
                self.send_response(307)
                self.send_header("Location", f"{manager.leads_to}{self.path}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            status, said = manager.once.pop(self.path, None) or manager.answers.get(
                self.path, (404, b"no such page")
            )
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_DELETE = _answer

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        manager = Manager(f"http://127.0.0.1:{server.server_port}")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield manager
        server.shutdown()


def a_submission(target: SubmitTarget) -> Submission:
    return submission_of(
        a_spec(),
        target,
        root="/root",
        root_id="root-1",
        generation=1,
        claim_id="Claim-1",
        base_env={"HOME": "/h", "PATH": "/bin"},
    )
