"""Kerberos for tests of YARN: MIT's KDC and the Python package ``gssapi``, in ``.flinkstyle/kerberos``.

``python3 -m tools.kerberos``. The KDC and the headers are Debian's packages, unpacked and not installed;
``gssapi`` has no wheel for Linux, so it is built against them, as its users do.
"""

from __future__ import annotations

import shutil
import sys

from tools.common import HOME, LOCKS, VENV_AIRFLOW, VENV_UV, Stamp, fail, remove, run, say
from tools.debian import unpack

FOLDER = HOME / "kerberos"
UNPACKED = FOLDER / "packages"
PYTHON = FOLDER / "python"
"""Holds ``gssapi``, for ``sys.path``."""
LOCK = LOCKS / "kerberos.txt"
DEBIAN = (
    *("krb5-kdc", "krb5-admin-server", "krb5-user", "libkadm5srv-mit12", "libkadm5clnt-mit12"),
    *("libkdb5-10", "libgssrpc4", "libverto-libev1", "libverto1", "libev4", "krb5-multidev", "libkrb5-dev"),
    *("comerr-dev", "libcom-err2", "libk5crypto3", "libkrb5support0", "libkrb5-3", "libgssapi-krb5-2"),
)


def main() -> int:
    """Make what is not there yet."""
    ensure()
    return 0


def ensure() -> None:
    """Unpack and build, unless that is done."""
    stamp = Stamp("kerberos", sys.version, LOCK, *DEBIAN)
    if stamp.is_current and PYTHON.exists():
        return
    if not shutil.which("apt-get") or not shutil.which("gcc"):
        fail(
            "A Debian with gcc was expected, found none.",
            "Nothing was made.",
            "Run it on Debian 12, after `apt-get install gcc`; other tests need no Kerberos.",
        )
    say("set-up: Kerberos, from Debian's packages ...")
    remove(FOLDER)
    unpack("kerberos", DEBIAN, UNPACKED)
    headers = f"-I{UNPACKED}/usr/include -I{UNPACKED}/usr/include/mit-krb5"
    library = next(UNPACKED.glob("usr/lib/*/libgssapi_krb5.so"))
    built = (
        f"PATH={UNPACKED}/usr/bin:/usr/bin:/bin",
        f"GSSAPI_COMPILER_ARGS=-DHAS_GSSAPI_EXT_H {headers}",
        f"GSSAPI_LINKER_ARGS=-L{library.parent} -lgssapi_krb5",
    )
    uv, python = VENV_UV / "bin" / "uv", VENV_AIRFLOW / "bin" / "python"
    install = (uv, "pip", "install", "--quiet", "--python", python, "--target", PYTHON)
    pinned = ("--require-hashes", "-r", LOCK, "--build-constraints", LOCK)
    run("kerberos", ["env", *built, *install, *pinned])
    stamp.set()


if __name__ == "__main__":
    sys.exit(main())
