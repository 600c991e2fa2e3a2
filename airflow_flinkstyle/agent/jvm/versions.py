"""What differs between the Sparks that the agent runs on, 3.5 to 4.3. Versions are compared nowhere.

What is here asks the running Spark for what it has: Spark's classes move between packages, and builds of
distributors carry changes that their version does not tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.jvm.untyped import Java

_UNNAMED = "<Unassigned>"


def as_dict(scala_map: Java) -> dict[str, str]:
    """Return a map of Scala as one of Python; the classes that convert them differ in Scala 2.12 and 2.13."""
    entries, found = scala_map.iterator(), {}
    while entries.hasNext():
        entry = entries.next()
        found[entry._1()] = entry._2()  # noqa: SLF001  # a Tuple2's first and second
    return found


def engine_states(jvm: Java, found: Java) -> tuple[Java, Java]:
    """Return the objects ACTIVE and TERMINATED beside the state that an engine was found in.

    Their package is ``execution.streaming``; from 4.1 on ``execution.streaming.runtime``.
    """
    package = found.getClass().getPackage().getName()
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    active, terminated = (
        loader.loadClass(f"{package}.{name}$").getField("MODULE$").get(None)
        for name in ("ACTIVE", "TERMINATED")
    )
    return active, terminated


def source_name(leaf: Java) -> str | None:
    """Return what ``.name()`` called a source of a plan; None without it, and on Spark before 4.2."""
    from py4j.protocol import Py4JError

    try:
        text = leaf.sourceIdentifyingName().toString()
    except Py4JError:
        return None
    name: str = text.rpartition("=")[2].strip("\"'")
    return None if name == _UNNAMED else name
