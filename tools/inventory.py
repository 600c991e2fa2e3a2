"""The site's ``objects.inv``: what mkdocstrings writes there, with the pages and the public names added.

Other projects' documents link by it (Sphinx's intersphinx, mkdocstrings' ``inventories``). mkdocstrings lists
each object under its module; people import most of them from the room: ``airflow_flinkstyle.operators.X``.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEAD = "# Sphinx inventory version 2\n# Project: {project}\n# Version: {version}\n"
_PACKED = "# The remainder of this file is compressed using zlib.\n"


def read(inventory: bytes) -> dict[str, str]:
    """Return the lines of an inventory by the names of their objects.

    Raises:
        ValueError: If it is of another version of the format.
    """
    head, mark, packed = inventory.partition(_PACKED.encode())
    if not head.startswith(b"# Sphinx inventory version 2\n") or not mark:
        raise ValueError(f"A Sphinx inventory of version 2 was expected, found {inventory[:40]!r}.")
    return {_name_of(line): line for line in zlib.decompress(packed).decode().splitlines()}


def complete(
    inventory: bytes, *, project: str, version: str, pages: Mapping[str, str], exported: Mapping[str, str]
) -> bytes:
    """Return an inventory with more in it.

    Args:
        inventory: As mkdocstrings has written it.
        project: Name.
        version: Of the project.
        pages: Path of a page without its ending -> its title.
        exported: Public name -> the name of the same object within its module.

    Raises:
        KeyError: If the documentation does not have an object that is exported.
    """
    lines = read(inventory)
    for public, home in exported.items():
        _, role, _, place, _ = lines[home].split(" ", 4)
        lines[public] = f"{public} {role} 1 {place.removesuffix('$')}{home if place.endswith('$') else ''} -"
    for page, title in pages.items():
        place = re.sub(r"(^|/)README$", r"\1index", page)  # as MkDocs calls it
        lines[page] = f"{page} std:doc -1 {place}.html {title}"
    body = "".join(f"{lines[name]}\n" for name in sorted(lines)).encode()
    return (_HEAD.format(project=project, version=version) + _PACKED).encode() + zlib.compress(body, 9)


def title_of(markdown: str) -> str:
    """Return a page's first heading."""
    found = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    return found[1] if found else "-"


def _name_of(line: str) -> str:
    found = re.match(r"(.+?)\s+(?:\S+:\S+)\s+-?\d+\s", line)
    if not found:
        raise ValueError(f"A name, a role and a priority were expected, found {line!r}.")
    return found[1]
