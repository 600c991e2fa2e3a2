"""Asking the ResourceManagers of a YARN, whichever leads, and its nodes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from airflow_flinkstyle.jobs.deployments.rest import (
    NoAnswerError,
    NotDeliveredError,
    NotLoggedInError,
    ask,
    read,
)
from airflow_flinkstyle.jobs.deployments.yarn.login import KerberosLogin
from airflow_flinkstyle.jobs.deployments.yarn.settings import manager_urls, wants_kerberos

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.jobs.target import SubmitTarget

KEYTAB: Final = "spark.kerberos.keytab"
PRINCIPAL: Final = "spark.kerberos.principal"
_API: Final = "ws/v1/cluster"


class Managers:
    """Those of one target."""

    def __init__(self, target: SubmitTarget) -> None:
        self._target = target
        self._login = KerberosLogin(target.conf.get(PRINCIPAL), target.conf.get(KEYTAB))

    def urls(self) -> Iterator[str]:
        """Return the addresses of their pages: the target's, or those of Hadoop's settings."""
        known = self._target.cluster_url
        for url in known.split(",") if known else manager_urls(os.environ):
            yield url.strip().rstrip("/")

    def ask(self, path: str) -> Mapping[str, Any]:
        """Return what the first one says that answers.

        Raises:
            NotLoggedInError: If none does, and one of them wants to know who asks.
            NoAnswerError: If none does, with each one's reason.
        """
        reasons, kind = [], NoAnswerError
        for url in self.urls():
            try:
                return ask(self._with_user(f"{url}/{_API}/{path}"), login=self._login)
            except (NotDeliveredError, NoAnswerError) as error:
                reasons.append(str(error))
                kind = NotLoggedInError if isinstance(error, NotLoggedInError) else kind
        raise kind("; ".join(reasons) or "no address of a ResourceManager is known")

    def tell(self, path: str, body: Mapping[str, Any]) -> Iterator[dict[str, Any] | Exception]:
        """Put something to each of them, and return what each one says, or why it does not."""
        for url in self.urls():
            address = self._with_user(f"{url}/{_API}/{path}", tells=True)
            try:
                yield ask(address, method="PUT", body=body, login=self._login)
            except (NotDeliveredError, NoAnswerError) as error:
                yield error

    def read(self, url: str) -> str:
        """Return a page of one of their nodes, as text; raises what ``rest.read`` does."""
        return read(url, login=self._login)

    def _with_user(self, url: str, *, tells: bool = False) -> str:
        """Say in whose name one asks: where Kerberos tells who asks, only if it is another's."""
        user = self._target.proxy_user
        if wants_kerberos(os.environ):
            field = "doAs"
        elif tells:
            field, user = "user.name", user or os.environ.get("HADOOP_USER_NAME") or _user()
        else:
            return url
        return f"{url}{'&' if '?' in url else '?'}{field}={quote(user, safe='')}" if user else url


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
