"""What runs inside the Spark driver: the launcher of unmodified scripts, and everything it guards.

``runtime`` puts the rooms' parts together; what a caller of the job does belongs in ``jobs``.
"""

from __future__ import annotations
