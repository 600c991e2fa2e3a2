"""Asking a cluster manager over HTTP: an answer, or whether the question may have arrived."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Protocol

from airflow_flinkstyle.jobs.deployments.base import Alive, Unknown, Waiting

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.deployments.base import DriverState

TIMEOUT_S = 10.0
_KILL_TIMEOUT_S, _LOOK_S = 30.0, 0.5
_KEPT_S = 2.0
"""How old what a cluster said of a driver may be: callers look four times a second."""
_MOST_BYTES = 4 << 20
_NOT_FOUND, _NOT_LOGGED_IN = 404, 401
_SHOWN = 300


class NotDeliveredError(Exception):
    """Nobody listens at the address: the question did not arrive."""


class NoAnswerError(Exception):
    """The question may have arrived, and there is no answer that can be used."""


class NoSuchPageError(NoAnswerError):
    """The server has nothing at the address, and says so in no words of a cluster manager."""


class _RefusedInWordsError(NoAnswerError):
    """The server refuses, with a JSON object."""

    def __init__(self, reason: str, said: str) -> None:
        super().__init__(f"{reason}: {said[:_SHOWN]}")
        self.said = said


class NotLoggedInError(NoAnswerError):
    """The server wants to know who asks, and there is nothing here to show it."""


class Login(Protocol):
    """Who asks a server that wants to know it (``WWW-Authenticate: Negotiate``)."""

    def header(self, url: str) -> str:
        """Return what ``Authorization`` says to it; raises ``NotLoggedInError``."""


def ask(
    url: str,
    *,
    method: str = "GET",
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    trust: ssl.SSLContext | None = None,
    login: Login | None = None,
) -> dict[str, Any]:
    """Return what a cluster manager answers, refusals too: a JSON object.

    Args:
        url: Of what is asked for.
        method: Of HTTP.
        body: Sent as JSON.
        headers: More of them, such as who asks.
        trust: Whom to trust, and which certificate to show; None for what this machine trusts.
        login: Used once the server asks for it.

    Raises:
        NotDeliveredError: If nobody listens there.
        NotLoggedInError: If it wants to know who asks, and ``login`` cannot tell.
        NoAnswerError: If it did not answer, or not with a JSON object; the reason is its text.
    """
    try:
        text = read(url, method=method, body=body, headers=headers, trust=trust, login=login)
    except _RefusedInWordsError as refusal:
        text = refusal.said
    try:
        said = json.loads(text)
    except ValueError as error:
        raise NoAnswerError(f"{url} answered {text[:_SHOWN]!r}") from error
    if not isinstance(said, dict):
        raise NoAnswerError(f"{url} answered {text[:_SHOWN]!r}")
    return said


def read(
    url: str,
    *,
    method: str = "GET",
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    trust: ssl.SSLContext | None = None,
    login: Login | None = None,
) -> str:
    """Return what a cluster manager answers, as text; takes and raises what ``ask`` does."""
    if not url.startswith(("http://", "https://")):
        raise NotDeliveredError(f"{url} is no address of a cluster manager")
    data = None if body is None else json.dumps(body).encode()
    usual = {"Content-Type": "application/json;charset=UTF-8", "Accept": "application/json, text/plain"}
    request = urllib.request.Request(  # noqa: S310 - checked above
        url, data=data, method=method, headers={**usual, **(headers or {})}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trust) as answer:  # noqa: S310
            return str(answer.read(_MOST_BYTES).decode(errors="replace"))
    except urllib.error.HTTPError as error:
        if login is not None and _wants_login(error):
            known = {**(headers or {}), "Authorization": login.header(error.url)}
            return read(
                error.url, method=method, body=body, headers=known, trust=trust
            )  # it may have led there
        said = error.read(_MOST_BYTES).decode(errors="replace")
        reason = f"{url} answered {error.code} {error.reason}"
        if said.lstrip().startswith("{"):
            raise _RefusedInWordsError(reason, said) from error
        raise (NoSuchPageError if error.code == _NOT_FOUND else NoAnswerError)(reason) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            raise NotDeliveredError(f"nobody listens at {url}") from error
        raise NoAnswerError(f"{url} did not answer: {error.reason}") from error
    except (OSError, ValueError) as error:
        raise NoAnswerError(f"{url} did not answer: {error}") from error


def _wants_login(error: urllib.error.HTTPError) -> bool:
    return error.code == _NOT_LOGGED_IN and "Negotiate" in (error.headers.get_all("WWW-Authenticate") or ())


def both_ends(stdout: str, stderr: str, lines: int) -> str:
    """Return the ends of a driver's two logs: on a cluster Python writes to the one, the JVM to the other."""
    python, jvm = stdout.splitlines(), stderr.splitlines()
    python = python[-max(1, lines - lines // 6, lines - len(jvm)) :]
    jvm = jvm[-max(1, lines - len(python)) :]
    parts = (("stderr, of the JVM", jvm), ("stdout, of Python", python))
    return "\n".join(line for name, part in parts if part for line in (f"--- {name}:", *part)).strip()


class StateCache:
    """What a cluster said of its drivers, for a moment."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[float, DriverState]] = {}

    def state(self, driver: str, look: Callable[[], DriverState]) -> DriverState:
        """Return what was said a moment ago, or ask."""
        at_s, state = self._said.get(driver, (0.0, None))
        if state is None or time.monotonic() - at_s > _KEPT_S:
            state = look()
            self._said[driver] = (time.monotonic(), state)
        return state

    def until_ended(self, driver: str, look: Callable[[], DriverState]) -> DriverState:
        """Ask until a driver that was killed has ended, or nothing is known of it any more."""
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        while True:
            self._said.pop(driver, None)
            if not isinstance(state := look(), (Alive, Waiting)):
                return state
            if time.monotonic() > deadline:
                return Unknown(f"it did not end within {_KILL_TIMEOUT_S:g} s of its kill")
            time.sleep(_LOOK_S)
