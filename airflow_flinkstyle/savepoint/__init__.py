"""Savepoints: manifest, repository, capture, verify, restore."""

from __future__ import annotations
