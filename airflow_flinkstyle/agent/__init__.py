"""What runs inside the Spark driver: the launcher of unmodified scripts, and everything it guards.

``core`` decides, and asks Spark by one protocol; ``spark`` answers by PySpark, and has what is put around a
script. ``launcher`` puts them together; what a caller of the job does belongs in ``jobs``.
"""

from __future__ import annotations
