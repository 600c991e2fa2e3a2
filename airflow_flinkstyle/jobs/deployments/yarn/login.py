"""Who asks a YARN that wants Kerberos: SPNEGO, by a keytab or by the ticket that this process finds.

Source: RFC 4559; Hadoop's ``KerberosAuthenticationHandler`` takes such a token and knows ``HTTP/<host>``.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from airflow_flinkstyle.jobs.deployments.rest import NotLoggedInError

_SPNEGO: Final = "1.3.6.1.5.5.2"
_INSTALL: Final = "install airflow-flinkstyle[kerberos] where Airflow's workers and triggerers run"
_TICKET: Final = (
    "run `airflow kerberos` beside the workers, or name principal and keytab in the Spark connection "
    "(principal, and spark.kerberos.keytab in conf)"
)


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """One who asks; its tickets are taken from the keytab when they are needed, and kept in memory."""

    principal: str | None = None
    keytab: str | None = None
    """None: the ticket that is found by ``KRB5CCNAME``, as ``airflow kerberos`` renews it."""

    def header(self, url: str) -> str:
        """Return what ``Authorization`` says to the server of an address.

        Raises:
            NotLoggedInError: If there is no ticket for it, or nothing here that can use one.
        """
        host = urlsplit(url).hostname or ""
        try:
            import gssapi
        except ImportError as error:
            raise NotLoggedInError(
                f"{url} asks for Kerberos, which needs the package gssapi here ({error}): {_INSTALL}"
            ) from error
        try:
            token = self._token(gssapi, host)
        except gssapi.exceptions.GSSError as error:
            raise NotLoggedInError(
                f"{url} asks for Kerberos, and there is no ticket: {error}; {_TICKET}"
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
        store = {"client_keytab": self.keytab, "ccache": f"MEMORY:flinkstyle-{self.principal}"}
        return gssapi.Credentials(name=own, usage="initiate", store=store)
