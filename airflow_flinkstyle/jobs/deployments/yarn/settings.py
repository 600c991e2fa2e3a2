"""What Hadoop's own files say of a YARN: where its ResourceManagers are."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_MANAGER: Final = "yarn.resourcemanager"


def manager_urls(env: Mapping[str, str]) -> list[str]:
    """Return the web addresses of the ResourceManagers that ``yarn-site.xml`` names, none without one.

    Args:
        env: Names the folder of Hadoop's settings.
    """
    found = _site(env)
    scheme, kind, port = ("http", "webapp", 8088)
    if found.get("yarn.http.policy") == "HTTPS_ONLY":
        scheme, kind, port = ("https", "webapp.https", 8090)
    ids = [f".{one.strip()}" for one in found.get(f"{_MANAGER}.ha.rm-ids", "").split(",") if one.strip()]
    urls = []
    for part in ids or [""]:
        host = found.get(f"{_MANAGER}.hostname{part}") or found.get(f"{_MANAGER}.hostname")
        address = found.get(f"{_MANAGER}.{kind}.address{part}") or (f"{host}:{port}" if host else "")
        urls += [f"{scheme}://{address}"] if address else []
    return urls


def _site(env: Mapping[str, str]) -> dict[str, str]:
    folder = env.get("YARN_CONF_DIR") or env.get("HADOOP_CONF_DIR")
    site = Path(folder) / "yarn-site.xml" if folder else None
    if site is None or not site.is_file():
        return {}
    root = ET.parse(site).getroot()  # noqa: S314 - the administrator's own file
    return {item.findtext("name", ""): item.findtext("value", "").strip() for item in root.iter("property")}
