"""What runs inside the Spark driver: the launcher of unmodified scripts, and everything it guards.

``core`` decides, and uses Spark by one protocol; ``spark`` implements it with PySpark, and wraps the
script's calls. ``launcher`` puts them together; what a caller of the job does belongs in ``jobs``.
"""

from __future__ import annotations
