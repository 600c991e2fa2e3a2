from __future__ import annotations

import http.client
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, get_args

import pytest

from testbed.bad_s3 import CARRIED_OUT, FAULTS, BadS3, Fault, Weather

if TYPE_CHECKING:
    from collections.abc import Iterator

BODY = b"what was asked for"


class Always(Weather):
    """One kind of fault for every request."""

    def __init__(self, fault: Fault | None) -> None:
        super().__init__(0, most_bad_s=1)
        self.fault = fault

    def hits(self) -> Fault | None:
        return self.fault


class Upstream(HTTPServer):
    """Notes what it carries out."""

    def __init__(self) -> None:
        self.done: list[bytes] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                server.done.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", str(len(BODY)))
                self.end_headers()
                self.wfile.write(BODY)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def put(way: BadS3) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(way.endpoint.removeprefix("http://"), timeout=10)) as client:
        client.request("PUT", "/bucket/key", b"content")
        answer = client.getresponse()
        return answer.status, answer.read()


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_request_is_carried_out_or_not_as_its_fault_says(upstream: Upstream, fault: Fault | None):
    with BadS3(upstream.server_address[1], Always(fault), late_s=0.05) as way:
        if fault in ("reset", "stall", "cut"):
            with pytest.raises((http.client.HTTPException, OSError)):
                put(way)
        else:
            status, content = put(way)
            expected = {"slow-down": 503, "internal": 500, "kms": 400}
            assert status == expected.get(fault or "", 200)
            assert (content == BODY) == (status == 200)
        assert upstream.done == ([b"content"] if fault is None or fault in CARRIED_OUT else [])
        assert (sum(way.hits.values()), sum(way.requests.values())) == (fault is not None, 1)


def test_spells_follow_the_seed_and_end_when_it_clears_up():
    weather = Weather(7, most_bad_s=60)
    assert weather.hits() is None
    weather.let_loose()
    found = {weather.hits() for _ in range(200)} - {None}
    assert len(found) == 1
    assert found <= set(get_args(Fault))
    weather.clear_up()
    assert {weather.hits() for _ in range(200)} == {None}
