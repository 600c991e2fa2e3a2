"""What runs inside the Spark driver: the launcher of unmodified scripts, and everything it guards."""

from __future__ import annotations
