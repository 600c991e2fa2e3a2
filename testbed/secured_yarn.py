"""Settings by which a YARN wants Kerberos from everybody, on its pages too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.kerberos import GATEWAY, HOST

if TYPE_CHECKING:
    from testbed.kerberos import Kdc


def core_settings(kdc: Kdc) -> dict[str, str]:
    """Return those of ``core-site.xml``; ``GATEWAY`` may act for anybody."""
    http = "hadoop.http.authentication"
    return {
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.authorization": "true",
        "hadoop.http.filter.initializers": "org.apache.hadoop.security.AuthenticationFilterInitializer",
        f"{http}.type": "kerberos",
        f"{http}.kerberos.principal": kdc.principal(f"HTTP/{HOST}"),
        f"{http}.kerberos.keytab": str(kdc.keytab(f"HTTP/{HOST}")),
        f"hadoop.proxyuser.{GATEWAY}.hosts": "*",
        f"hadoop.proxyuser.{GATEWAY}.users": "*",
    }


def yarn_settings(kdc: Kdc) -> dict[str, str]:
    """Return those of ``yarn-site.xml``: only who owns an application, and ``yarn``, may see and kill it."""
    found = {"yarn.acl.enable": "true", "yarn.admin.acl": "yarn"}
    for daemon in ("resourcemanager", "nodemanager"):
        found |= {
            f"yarn.{daemon}.principal": kdc.principal(f"yarn/{HOST}"),
            f"yarn.{daemon}.keytab": str(kdc.keytab(f"yarn/{HOST}")),
            f"yarn.{daemon}.webapp.spnego-principal": kdc.principal(f"HTTP/{HOST}"),
            f"yarn.{daemon}.webapp.spnego-keytab-file": str(kdc.keytab(f"HTTP/{HOST}")),
        }
    return found
