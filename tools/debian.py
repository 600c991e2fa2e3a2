"""Debian's packages, unpacked into a folder and not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.common import remove, run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def unpack(step: str, packages: Iterable[str], folder: Path) -> None:
    """Fetch packages and unpack them into a folder, which is made anew.

    Args:
        step: Of set-up, for its log.
        packages: By their names.
        folder: Gets their files.
    """
    remove(folder)
    archives = folder / "archives"
    archives.mkdir(parents=True)
    run(step, ["sh", "-c", f"cd '{archives}' && apt-get download {' '.join(packages)}"])
    for archive in sorted(archives.glob("*.deb")):
        run(step, ["dpkg", "-x", archive, folder])
    remove(archives)
