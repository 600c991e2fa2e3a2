"""What differs between the Sparks that jobs run on, 3.5 to 4.3. Versions are compared nowhere.

What is here asks the running Spark for what it has: Spark's classes move between packages, and builds of
distributors carry changes that their version does not show.
"""

from __future__ import annotations

from typing import Any

Java = Any
"""An object of the driver's JVM, or the JVM itself."""
_STREAMING = "org.apache.spark.sql.execution.streaming"
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
    return _scala_object(jvm, f"{package}.ACTIVE"), _scala_object(jvm, f"{package}.TERMINATED")


def checkpoint_files(jvm: Java, folder: Java, conf: Java) -> Java:
    """Return what Spark writes a checkpoint's files in a folder with, so that each is there whole or not.

    Its package is ``execution.streaming``; from 4.1 on ``execution.streaming.checkpointing``.
    """
    from py4j.protocol import Py4JJavaError

    try:
        managers = _scala_object(jvm, f"{_STREAMING}.checkpointing.CheckpointFileManager")
    except Py4JJavaError:  # no such class
        managers = _scala_object(jvm, f"{_STREAMING}.CheckpointFileManager")
    return managers.create(folder, conf)


def ends_the_rows_of_a_killed_task(jvm: Java) -> bool:
    """Return whether ``mapInArrow`` gives a task that is killed an end of its rows, as Spark 3.5 does.

    The iterator that feeds it there just has no more rows once the task is to end. From 4.0 on the stream of
    rows breaks off.
    """
    name = "org/apache/spark/sql/execution/python/MapInBatchEvaluatorFactory$MapInBatchEvaluator.class"
    stream = jvm.java.lang.Thread.currentThread().getContextClassLoader().getResourceAsStream(name)
    return stream is not None and b"ContextAwareIterator" in bytes(stream.readAllBytes())


def streaming_leaves(df: Java) -> list[Java]:
    """Return the streaming sources of a data frame's plan, in the order of an offset log v1."""
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()  # noqa: SLF001
    return [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]


def source_name(leaf: Java) -> str | None:
    """Return what ``.name()`` called a source of a plan; None without it, and on Spark before 4.2."""
    from py4j.protocol import Py4JError

    try:
        text = leaf.sourceIdentifyingName().toString()
    except Py4JError:
        return None
    name: str = text.rpartition("=")[2].strip("\"'")
    return None if name == _UNNAMED else name


def _scala_object(jvm: Java, name: str) -> Java:
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.loadClass(f"{name}$").getField("MODULE$").get(None)
