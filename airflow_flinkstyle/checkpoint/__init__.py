"""Spark's checkpoint files: logs, state stores, and which batch can be cut out of them."""

from __future__ import annotations
