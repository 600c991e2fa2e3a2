"""Requests to a cluster manager over HTTP: its answer, or whether the request may have arrived."""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlsplit

from airflow_flinkstyle.jobs.deployments.base import Alive, DriverPending, Unknown
from airflow_flinkstyle.protocol.driver_log import without_settings

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.deployments.base import DriverState

TIMEOUT_S = 10.0
_KILL_TIMEOUT_S, _POLL_S = 30.0, 0.5
_KEPT_S = 0.5
"""How long a driver's state is cached: callers ask four times a second."""
_MOST_BYTES = 4 << 20
_NOT_LOGGED_IN = 401
_REASONS = {status.value: status.phrase for status in HTTPStatus}
_SHOWN = 300


class NotDeliveredError(Exception):
    """No connection to the address was made: the request did not arrive."""


class NoAnswerError(Exception):
    """The request may have arrived, and there is no usable answer."""


class HttpRefusedError(NoAnswerError):
    """The server refuses.

    Attributes:
        code: The HTTP status.
        text: The body of its answer.
        url: Of the server; after a redirect it is not the one that was asked.
        wants_login: Whether it asks for a login (``WWW-Authenticate: Negotiate``).
    """

    def __init__(self, url: str, code: int, text: str, *, wants_login: bool = False) -> None:
        details = f": {' '.join(text.split())[:_SHOWN]}" if _is_object(text) else ""
        super().__init__(f"{url} answered {code} {_REASONS.get(code, '')}{details}".rstrip())
        self.url, self.code, self.text, self.wants_login = url, code, text, wants_login


class ServerLogin(Protocol):
    """The login at servers that ask for one."""

    def address(self, url: str) -> str:
        """Return the address to ask, which may name the user for whom the request is made."""

    def header(self, url: str) -> str:
        """Return the ``Authorization`` header for the server; raises ``NoAnswerError``."""


def ask(
    url: str,
    *,
    method: str = "GET",
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    trust: ssl.SSLContext | None = None,
) -> dict[str, Any]:
    """Return what a cluster manager answers, refusals too: a JSON object.

    Args:
        url: The address to ask.
        method: The HTTP method.
        body: Sent as JSON.
        headers: Additional ones, such as a login.
        trust: Trusted authorities and the client's certificate; None for what this machine trusts.

    Raises:
        NotDeliveredError: If there is no connection to it.
        NoAnswerError: If it did not answer, or not with a JSON object; the reason is its text.
    """
    try:
        text = read(url, method=method, body=body, headers=headers, trust=trust)
    except HttpRefusedError as refusal:
        if not _is_object(refusal.text):
            raise
        text = refusal.text
    return as_object(url, text)


def as_object(url: str, text: str) -> dict[str, Any]:
    """Return the JSON object that was answered; raises ``NoAnswerError``."""
    try:
        answer = json.loads(text)
    except ValueError as error:
        raise NoAnswerError(f"{url} answered {text[:_SHOWN]!r}") from error
    if not isinstance(answer, dict):
        raise NoAnswerError(f"{url} answered {text[:_SHOWN]!r}")
    return answer


def read(
    url: str,
    *,
    method: str = "GET",
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    trust: ssl.SSLContext | None = None,
    login: ServerLogin | None = None,
) -> str:
    """Return what a cluster manager answers, as text.

    Takes and raises what ``ask`` does, and ``HttpRefusedError`` for every refusal. ``login`` is
    used once a server asks for it; after a redirect the next server gets a header of its own.
    """
    sent, known = dict(headers or {}), set[str]()
    while True:
        try:
            return _read(url, method, body, sent, trust)
        except HttpRefusedError as refusal:
            host = urlsplit(refusal.url).netloc
            if login is None or not refusal.wants_login or host in known:
                raise
            known.add(host)
            url = login.address(refusal.url)
            sent["Authorization"] = login.header(url)


def _read(
    url: str,
    method: str,
    body: Mapping[str, Any] | None,
    headers: Mapping[str, str],
    trust: ssl.SSLContext | None,
) -> str:
    if not url.startswith(("http://", "https://")):
        raise NotDeliveredError(f"{url} is no address of a cluster manager")
    data = None if body is None else json.dumps(body).encode()
    usual = {"Content-Type": "application/json;charset=UTF-8", "Accept": "application/json, text/plain"}
    request = urllib.request.Request(url, data=data, method=method, headers=usual)  # noqa: S310 - checked above
    for name, value in headers.items():
        request.add_unredirected_header(name, value)  # a login is for this server only
    opener = urllib.request.build_opener(_Http, _Https(context=trust))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            return str(answer.read(_MOST_BYTES).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        text = error.read(_MOST_BYTES).decode(errors="replace")
        wanted = ",".join(error.headers.get_all("WWW-Authenticate") or ()).lower()
        raise HttpRefusedError(
            error.url, error.code, text, wants_login=error.code == _NOT_LOGGED_IN and "negotiate" in wanted
        ) from error
    except urllib.error.URLError as error:
        raise NoAnswerError(f"{url} did not answer: {error.reason}") from error
    except (OSError, ValueError) as error:
        raise NoAnswerError(f"{url} did not answer: {error}") from error


class _Reached:
    """Tells a server without a connection from one that has not answered: for urllib both may time out."""

    host: str
    port: int

    def connect(self) -> None:
        try:
            super().connect()  # type: ignore[misc]  # the other base has it
        except ConnectionRefusedError as error:
            raise NotDeliveredError(f"nobody listens at {self.host}:{self.port}") from error
        except OSError as error:  # of the name, the route, the time or the certificate
            raise NotDeliveredError(f"{self.host}:{self.port} is not reached: {error}") from error


class _HttpConnection(_Reached, http.client.HTTPConnection):
    pass


class _HttpsConnection(_Reached, http.client.HTTPSConnection):
    pass


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpConnection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_HttpsConnection, req, context=self._context)  # type: ignore[attr-defined]


def _is_object(text: str) -> bool:
    return text.lstrip().startswith("{")


def both_ends(stdout: str, stderr: str, lines: int) -> str:
    """Return the ends of a driver's two logs: on a cluster Python writes to one, the JVM to the other."""
    python, jvm = without_settings(stdout), without_settings(stderr)
    python = python[-max(1, lines - lines // 6, lines - len(jvm)) :]
    jvm = jvm[-max(1, lines - len(python)) :]
    parts = (("stderr, of the JVM", jvm), ("stdout, of Python", python))
    return "\n".join(line for name, part in parts if part for line in (f"--- {name}:", *part)).strip()


class StateCache:
    """The states of a cluster's drivers, cached for a moment."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[float, DriverState]] = {}

    def state(self, driver: str, query: Callable[[], DriverState]) -> DriverState:
        """Return the cached state, or ask for it."""
        at_s, state = self._states.get(driver, (0.0, None))
        if state is None or time.monotonic() - at_s > _KEPT_S:
            state = query()
            self._states[driver] = (time.monotonic(), state)
        return state

    def until_ended(self, driver: str, query: Callable[[], DriverState]) -> DriverState:
        """Ask until a driver that was killed has ended, or its state is unknown."""
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while True:
            self._states.pop(driver, None)
            if not isinstance(state := query(), (Alive, DriverPending)):
                return state
            if time.monotonic() > deadline:
                return Unknown(f"it did not end within {_KILL_TIMEOUT_S:g} s of its kill")
            time.sleep(_POLL_S)


_SPNEGO: Final = "1.3.6.1.5.5.2"


class NoTicketError(NoAnswerError):
    """A server asks for a login, and there is no ticket for it."""


class NoGssapiError(NoAnswerError):
    """A server asks for a login, and the package that uses tickets is missing here."""


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """A login at a server that wants Kerberos (SPNEGO), by a keytab or an existing ticket.

    Tickets are taken from the keytab when they are needed, and kept in memory. Source: RFC 4559; Hadoop's
    ``KerberosAuthenticationHandler`` takes such a token and knows ``HTTP/<host>``.
    """

    principal: str | None = None
    keytab: str | None = None
    """None: the ticket that is found by ``KRB5CCNAME``, as ``airflow kerberos`` renews it."""
    acts_for: str | None = None
    """The user for whom requests are made, if it is another one."""

    def address(self, url: str) -> str:
        """Return the address to ask for that user."""
        if not self.acts_for or "doAs=" in urlsplit(url).query:
            return url
        return f"{url}{'&' if '?' in url else '?'}doAs={quote(self.acts_for, safe='')}"

    def header(self, url: str) -> str:
        """Return the ``Authorization`` header for the server of an address.

        Raises:
            NoTicketError: If there is no ticket for it.
            NoGssapiError: If the package that uses tickets is not installed.
        """
        host = urlsplit(url).hostname or ""
        try:
            import gssapi
        except ImportError as error:
            raise NoGssapiError(
                f"{url} wants Kerberos, and the package gssapi is missing here ({error})"
            ) from error
        try:
            token = self._token(gssapi, host)
        except (gssapi.exceptions.GSSError, OSError) as error:
            raise NoTicketError(
                f"{url} wants Kerberos, and no ticket for it could be got: {error}"
            ) from error
        return f"Negotiate {base64.b64encode(token).decode()}"

    def _token(self, gssapi: Any, host: str) -> bytes:  # noqa: ANN401 - the module, which may not be installed
        server = gssapi.Name(f"HTTP@{host}", gssapi.NameType.hostbased_service)
        mechanism = gssapi.OID.from_int_seq(_SPNEGO)
        context = gssapi.SecurityContext(
            name=server, creds=self._credentials(gssapi), usage="initiate", mech=mechanism
        )
        return bytes(context.step())

    def _credentials(self, gssapi: Any) -> Any:  # noqa: ANN401 - of the same module
        if not self.keytab:
            return None
        own = gssapi.Name(self.principal, gssapi.NameType.kerberos_principal) if self.principal else None
        written = Path(self.keytab).stat().st_mtime_ns  # a new key gets new tickets
        store = {
            "client_keytab": self.keytab,
            "ccache": f"MEMORY:flinkstyle-{self.principal}-{self.keytab}-{written}",
        }
        return gssapi.Credentials(name=own, usage="initiate", store=store)
