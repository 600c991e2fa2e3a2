"""Requests to a Kubernetes API server, with the login that Spark's own submission uses.

That is files named in the settings, a kubeconfig, or the account of the pod that this runs in. Plain HTTPS:
about eight kinds of requests need no client library, so a worker needs no further package.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.rest import (
    HttpRefusedError,
    NoAnswerError,
    NotDeliveredError,
    ask,
    read,
)
from airflow_flinkstyle.jobs.errors import ClusterLoginError

if TYPE_CHECKING:
    from collections.abc import Mapping

IN_CLUSTER: Final = "in-cluster"
"""In place of a kubeconfig: the account of the pod that this runs in."""
NAMESPACE: Final = "spark.kubernetes.namespace"
CONTEXT: Final = "spark.kubernetes.context"
SUBMISSION: Final = "spark.kubernetes.authenticate.submission."
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LOGIN_KEPT_S = 60.0
"""Tokens change while a triggerer runs."""
_PLUGIN_TIMEOUT_S = 30.0
_UNUSABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, subprocess.SubprocessError)
"""A kubeconfig that is cut off lacks fields; a program that gives the login fails, or takes too long."""
_NOT_FOUND = 404
CONFLICT: Final = 409


class RefusedError(NoAnswerError):
    """The API server answered, and refused."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiLogin:
    """A login, and the authorities that it trusts."""

    trust: ssl.SSLContext
    token: str = field(default="", repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that carry the login."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


class KubernetesApi:
    """The API server of a master, asked by the login of its settings or of a kubeconfig."""

    def __init__(self, *, master: str, conf: Mapping[str, str], kube_config: str | None) -> None:
        self._conf, self._kube_config = conf, kube_config
        address = master.removeprefix("k8s://")
        self.url = (address if "://" in address else f"https://{address}").rstrip("/")
        self.namespace = conf.get(NAMESPACE) or "default"
        self._login: tuple[float, ApiLogin] | None = None

    def pod(self, name: str) -> str:
        """Return the path of a pod."""
        return self.path("pods", name)

    def path(self, kind: str, name: str = "", *, of: str = "") -> str:
        """Return the path of an object of the namespace, or of all of its kind.

        Args:
            kind: In the plural, as paths have it.
            name: Of the object; empty for all of its kind.
            of: Group and version of a kind outside of Kubernetes' core.
        """
        root = f"apis/{of}" if of else "api/v1"
        below = f"/{root}/namespaces/{quote(self.namespace, safe='')}/{kind}"
        return f"{below}/{quote(name, safe='')}" if name else below

    def get(self, path: str) -> dict[str, Any] | None:
        """Return an object, or a list; None if there is none; raises as ``ask``."""
        try:
            return self.ask(path)
        except RefusedError as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    def ask(self, path: str, *, method: str = "GET", body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return what the API server answers.

        Raises:
            NotDeliveredError: If it was not asked: nothing listens there, or there is no login.
            RefusedError: If it refused.
            NoAnswerError: If it did not answer, or not with an object.
        """
        login = self._logged_in()
        try:
            answer = ask(
                f"{self.url}{path}", method=method, body=body, headers=login.headers, trust=login.trust
            )
        except HttpRefusedError as error:
            if error.code == _NOT_FOUND:  # of a kind of objects that the server does not have
                raise RefusedError(str(error), _NOT_FOUND) from error
            raise
        if answer.get("kind") == "Status" and answer.get("status") == "Failure":
            message = str(answer.get("message") or answer.get("reason"))
            raise RefusedError(message, int(answer.get("code") or 0))
        return answer

    def text(self, path: str) -> str:
        """Return an answer that is no object, such as a log; raises as ``ask``."""
        login = self._logged_in()
        return read(f"{self.url}{path}", headers=login.headers, trust=login.trust)

    def log_in(self) -> ApiLogin:
        """Read the login from the settings, a kubeconfig or this pod's account; requests use it for a minute.

        Raises:
            BadInputError: If there is none that this process may read.
            ClusterLoginError: If it cannot be used: perhaps it is just being written.
        """
        login = self._read_login()
        self._login = time.monotonic(), login
        return login

    def _read_login(self) -> ApiLogin:
        files = {
            name: self._conf.get(f"{SUBMISSION}{name}")
            for name in ("oauthTokenFile", "caCertFile", "clientCertFile", "clientKeyFile")
        }
        try:
            if any(files.values()):
                return _of_files(files)
            if self._kube_config != IN_CLUSTER and (place := self._place()) is not None:
                return _of_kubeconfig(place, self._conf.get(CONTEXT))
            if (_ACCOUNT / "token").exists():
                return _of_files(
                    {"oauthTokenFile": str(_ACCOUNT / "token"), "caCertFile": str(_ACCOUNT / "ca.crt")}
                )
        except (FileNotFoundError, PermissionError) as error:
            raise BadInputError(*_no_login(f"one that cannot be read: {error}")) from error
        except _UNUSABLE as error:
            found = f"one that cannot be used: {type(error).__name__}: {error}"
            raise ClusterLoginError(*_no_login(found)) from error
        raise BadInputError(*_no_login("none"))

    def _logged_in(self) -> ApiLogin:
        at_s, login = self._login or (0.0, None)
        if login is not None and time.monotonic() - at_s <= _LOGIN_KEPT_S:
            return login
        try:
            return self.log_in()
        except (BadInputError, ClusterLoginError) as error:
            raise NotDeliveredError(error.problem) from error

    def _place(self) -> Path | None:
        if self._kube_config:
            return Path(self._kube_config)
        named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0] or "~/.kube/config"
        place = Path(named).expanduser()
        return place if place.is_file() and place.stat().st_size else None


def _of_files(files: Mapping[str, str | None]) -> ApiLogin:
    trust = ssl.create_default_context(cafile=files["caCertFile"])
    if certificate := files.get("clientCertFile"):
        trust.load_cert_chain(certificate, files.get("clientKeyFile"))
    token = files.get("oauthTokenFile")
    return ApiLogin(trust=trust, token=Path(token).read_text().strip() if token else "")


def _of_kubeconfig(place: Path, context_name: str | None) -> ApiLogin:
    import yaml

    try:
        config = yaml.safe_load(place.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{place} is no YAML: {error}") from error
    context = _named(config["contexts"], context_name or config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    file = cluster.get("certificate-authority")
    trust = ssl.create_default_context(
        cafile=str(place.parent / file) if file else None,
        cadata=_decoded(cluster, "certificate-authority-data"),
    )
    if cluster.get("insecure-skip-tls-verify"):
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    login = _of_plugin(user["exec"]) if "exec" in user else user
    _show_certificate(trust, login, place.parent)
    token = login.get("token") or ""
    if not token and (file := login.get("tokenFile")):
        token = (place.parent / file).read_text().strip()
    return ApiLogin(trust=trust, token=token)


def _of_plugin(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the login from the program that a kubeconfig names, as those of clouds do."""
    env = {**os.environ, **{one["name"]: one["value"] for one in named.get("env") or ()}}
    info = {"apiVersion": named["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}}
    output = subprocess.run(  # noqa: S603 - what the user's own kubeconfig names
        [named["command"], *(named.get("args") or ())],
        env={**env, "KUBERNETES_EXEC_INFO": json.dumps(info)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=_PLUGIN_TIMEOUT_S,
    ).stdout
    status = json.loads(output)["status"]
    pem = {"client-certificate": "clientCertificateData", "client-key": "clientKeyData"}
    encoded = {
        f"{name}-data": base64.b64encode(status[key].encode()) for name, key in pem.items() if status.get(key)
    }
    return {"token": status.get("token"), **encoded}


def _show_certificate(trust: ssl.SSLContext, user: Mapping[str, Any], folder: Path) -> None:
    certificate, key = _decoded(user, "client-certificate-data"), _decoded(user, "client-key-data")
    if certificate and key:
        with tempfile.NamedTemporaryFile("w") as file:  # of this user only; ssl reads files alone
            file.write(f"{certificate}\n{key}")
            file.flush()
            trust.load_cert_chain(file.name)
    elif user.get("client-certificate"):
        trust.load_cert_chain(folder / user["client-certificate"], folder / user["client-key"])


def _decoded(section: Mapping[str, Any], name: str) -> str | None:
    return base64.b64decode(section[name]).decode() if section.get(name) else None


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    found = next((item for item in items if item["name"] == name), None)
    if found is None:
        raise ValueError(f"{name!r} is not among {', '.join(str(item['name']) for item in items)}")
    return found


def _no_login(found: str) -> tuple[str, str, str]:
    """Return the three sentences of the error for a login that is not there, or not usable."""
    return (
        "A login to the Kubernetes API server was expected in a kubeconfig (kube_config_path of the "
        f"kubernetes connection, KUBECONFIG or ~/.kube/config), in files that the settings name "
        f"({SUBMISSION}oauthTokenFile), or in this pod's account, found {found}.",
        "Nothing was started or changed.",
        "Name one that can be used on every Airflow worker and triggerer.",
    )
