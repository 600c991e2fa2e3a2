"""Who asks a YARN that wants Kerberos: SPNEGO, by a keytab or by the ticket that this process finds.

Source: RFC 4559; Hadoop's ``KerberosAuthenticationHandler`` takes such a token and knows ``HTTP/<host>``.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from airflow_flinkstyle.jobs.deployments.rest import NoAnswerError

_SPNEGO: Final = "1.3.6.1.5.5.2"


class NoTicketError(NoAnswerError):
    """A server wants to know who asks, and no ticket could be got for it."""


class NoGssapiError(NoAnswerError):
    """A server wants to know who asks, and nothing here can use a ticket."""


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """One who asks; its tickets are taken from the keytab when they are needed, and kept in memory."""

    principal: str | None = None
    keytab: str | None = None
    """None: the ticket that is found by ``KRB5CCNAME``, as ``airflow kerberos`` renews it."""
    acts_for: str | None = None
    """The user in whose name one asks, if it is another."""

    def address(self, url: str) -> str:
        """Return the address at which to ask in that user's name."""
        if not self.acts_for or "doAs=" in urlsplit(url).query:
            return url
        return f"{url}{'&' if '?' in url else '?'}doAs={quote(self.acts_for, safe='')}"

    def header(self, url: str) -> str:
        """Return what ``Authorization`` says to the server of an address.

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
        asked = gssapi.Name(f"HTTP@{host}", gssapi.NameType.hostbased_service)
        mechanism = gssapi.OID.from_int_seq(_SPNEGO)
        context = gssapi.SecurityContext(
            name=asked, creds=self._credentials(gssapi), usage="initiate", mech=mechanism
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
