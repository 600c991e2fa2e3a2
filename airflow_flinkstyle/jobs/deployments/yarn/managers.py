"""Asking the ResourceManagers of a YARN, whichever leads, and its nodes."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.rest import (
    HttpRefusedError,
    NoAnswerError,
    NotDeliveredError,
    as_object,
    read,
)
from airflow_flinkstyle.jobs.deployments.yarn.login import KerberosLogin, NoGssapiError, NoTicketError
from airflow_flinkstyle.jobs.deployments.yarn.settings import manager_urls
from airflow_flinkstyle.jobs.errors import ClusterLoginError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.jobs.target import SubmitTarget

KEYTAB: Final = "spark.kerberos.keytab"
PRINCIPAL: Final = "spark.kerberos.principal"
_API: Final = "ws/v1/cluster"
_UNKNOWN: Final = '"exception":"NotFoundException"'
_NOT_LET_IN: Final = (401, 403)
log = logging.getLogger(__name__)


class Managers:
    """Those of one target."""

    def __init__(self, target: SubmitTarget) -> None:
        self._target = target
        self._login = KerberosLogin(
            target.conf.get(PRINCIPAL), target.conf.get(KEYTAB), acts_for=target.proxy_user
        )

    def urls(self) -> Iterator[str]:
        """Return the addresses of their pages: the target's, or those of Hadoop's settings."""
        known = self._target.cluster_url
        for url in known.split(",") if known else manager_urls(os.environ):
            yield url.strip().rstrip("/")

    def require_let_in(self) -> None:
        """Refuse a caller whom none of them would tell anything; those that are away refuse nobody.

        Raises:
            BadInputError: If this host cannot use tickets.
            ClusterLoginError: If there is no ticket, or they do not know whose it is.
        """
        errors = []
        for answer in self._answers("info"):
            if not isinstance(answer, Exception):
                return
            errors.append(answer)
        for error in errors:
            if isinstance(error, NoGssapiError):
                raise BadInputError(
                    f"ResourceManagers that tell what becomes of a driver were expected, found that {error}.",
                    state_after="Nothing was started.",
                    remedy="Install airflow-flinkstyle[kerberos] where Airflow's workers and triggerers run.",
                )
            if isinstance(error, NoTicketError) or getattr(error, "code", 0) in _NOT_LET_IN:
                raise ClusterLoginError(
                    f"ResourceManagers that tell what becomes of a driver were expected, found that {error}.",
                    state_after="Nothing was started.",
                    remedy="Run `airflow kerberos` beside the workers and triggerers, or name principal and "
                    "spark.kerberos.keytab in the Spark connection; a proxy user needs hadoop.proxyuser.*.",
                )
        log.info("No ResourceManager answers: %s", "; ".join(map(str, errors)))

    def ask(self, path: str) -> Mapping[str, Any]:
        """Return what the first one says that answers.

        Raises:
            NoAnswerError: If none does, with each one's reason.
        """
        reasons = []
        for answer in self._answers(path):
            if not isinstance(answer, Exception):
                return answer
            reasons.append(str(answer))
        raise NoAnswerError("; ".join(reasons) or "no address of a ResourceManager is known")

    def tell(self, path: str, body: Mapping[str, Any]) -> Iterator[str]:
        """Put something to each of them, and return what each one says, or why it says nothing."""
        user = self._target.proxy_user or os.environ.get("HADOOP_USER_NAME") or _user()
        for url in self.urls():
            address = f"{url}/{_API}/{path}?user.name={quote(user, safe='')}"
            try:
                yield read(address, method="PUT", body=body, login=self._login)
            except (NotDeliveredError, NoAnswerError) as error:
                yield f"no: {error}"

    def read(self, url: str) -> str:
        """Return a page of one of their nodes, as text; raises what ``rest.read`` does."""
        return read(url, login=self._login)

    def _answers(self, path: str) -> Iterator[Mapping[str, Any] | Exception]:
        """Yield what each of them says, or why not; nothing of an application that it does not know."""
        for url in self.urls():
            address = f"{url}/{_API}/{path}"
            try:
                yield as_object(address, read(address, login=self._login))
            except HttpRefusedError as refusal:
                yield {} if _UNKNOWN in refusal.said else refusal
            except (NotDeliveredError, NoAnswerError) as error:
                yield error


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
