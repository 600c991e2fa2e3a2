"""Names for objects without types."""

from __future__ import annotations

from typing import Any

Java = Any
"""An object of the driver's JVM, or the JVM itself, through py4j."""
PySpark = Any
"""An object of PySpark, or an argument that a script gave to one."""
