"""Which addresses may become a link."""

from __future__ import annotations

from urllib.parse import urlsplit


def web_address(url: str | None) -> str | None:
    """Return an address that may become a link: who can write the store must not choose what a click runs."""
    try:
        return url if url and urlsplit(url).scheme in ("http", "https") else None
    except ValueError:
        return None
