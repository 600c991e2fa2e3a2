"""A Kerberos of its own: MIT's KDC with one realm, and who is known there."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final, Self

from testbed import paths
from testbed.ports import free_port, is_listening
from testbed.process import Service

if TYPE_CHECKING:
    from pathlib import Path

REALM: Final = "TEST"
HOST: Final = "localhost"
"""Services are known by it: Kerberos asks for a host by its name."""
USER: Final = getpass.getuser()
"""Runs drivers as itself; one of this machine, as YARN's users are."""
GATEWAY: Final = "gateway"
"""Runs drivers as others."""
_USERS: Final = (USER, GATEWAY, f"yarn/{HOST}", f"HTTP/{HOST}")
_HOME: Final = paths.HOME / "kerberos"
_PACKAGES, _PYTHON = _HOME / "packages", _HOME / "python"
_CONF = """[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
[domain_realm]
 {host} = {realm}
"""
_KDC_CONF = """[kdcdefaults]
 kdc_listen = ""
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  max_life = 10h
  supported_enctypes = aes256-cts-hmac-sha1-96:normal
 }}
[dbmodules]
 db_module_dir = {modules}
"""


class Kdc:
    """The realm; while it runs, this process finds it, and the package that asks with its tickets."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._port = folder, free_port()
        self.conf = folder / "krb5.conf"
        self.service = Service(
            "KDC",
            [_PACKAGES / "usr/sbin/krb5kdc", "-r", REALM, "-n"],
            log_file=folder / "kdc.log",
            ready=lambda: is_listening(self._port),
            env=self._env(),
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Make the realm and its users, and start."""
        self.folder.mkdir(parents=True)
        known = {"realm": REALM, "port": self._port, "host": HOST, "folder": self.folder}
        modules = next(_PACKAGES.glob("usr/lib/*/krb5/plugins/kdb"))
        self.conf.write_text(_CONF.format(**known))
        (self.folder / "kdc.conf").write_text(_KDC_CONF.format(**known, modules=modules))
        self._run("usr/sbin/kdb5_util", "-r", REALM, "create", "-s", "-P", "of this test")
        for user in _USERS:
            self._run("usr/sbin/kadmin.local", "-r", REALM, "addprinc", "-randkey", user)
            self._run("usr/sbin/kadmin.local", "-r", REALM, "ktadd", "-k", str(self.keytab(user)), user)
        self.service.start()
        os.environ["KRB5_CONFIG"] = str(self.conf)
        sys.path.append(str(_PYTHON))

    def stop(self) -> None:
        """Stop it, and let this process find it no more."""
        self.service.stop()
        if os.environ.pop("KRB5_CONFIG", None):
            sys.path.remove(str(_PYTHON))

    def keytab(self, user: str) -> Path:
        """Return the file with a user's key."""
        return self.folder / f"{user.partition('/')[0]}.keytab"

    def principal(self, user: str) -> str:
        """Return a user's name with its realm."""
        return f"{user}@{REALM}"

    def ticket(self, user: str) -> Path:
        """Return a file with a new ticket of a user, as ``airflow kerberos`` keeps one."""
        cache = self.folder / f"{user.partition('/')[0]}.cache"
        self._run("usr/bin/kinit", "-c", str(cache), "-k", "-t", str(self.keytab(user)), user)
        return cache

    @property
    def env(self) -> dict[str, str]:
        """With it another process finds both, too, and so do the JVMs that it starts."""
        options = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {self.java_options}"
        return {"KRB5_CONFIG": str(self.conf), "PYTHONPATH": str(_PYTHON), "JDK_JAVA_OPTIONS": options}

    @property
    def java_options(self) -> str:
        """How a JVM finds the realm: it reads no ``KRB5_CONFIG``."""
        return f"-Djava.security.krb5.conf={self.conf}"

    def _env(self) -> dict[str, str]:
        library = next(_PACKAGES.glob("usr/lib/*/libgssapi_krb5.so")).parent
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(library),
            "KRB5_CONFIG": str(self.conf),
            "KRB5_KDC_PROFILE": str(self.folder / "kdc.conf"),
        }

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(_PACKAGES / program), *arguments]
        subprocess.run(command, env=self._env(), capture_output=True, text=True, check=True)  # noqa: S603
