"""The users of an Airflow of tests, with their roles."""

from __future__ import annotations

USERS = {"admin": "admin", "viewer": "viewer", "nobody": ""}
"""``nobody`` can log in and has no right."""


def password_of(user: str) -> str:
    """Return a user's password."""
    return f"{user}-pw"
