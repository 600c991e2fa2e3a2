"""PySpark and its JVM, as ``agent.core`` uses them, and the wrappers of PySpark for an unmodified script.

``session`` and ``starts`` serve the core; ``wrapping`` and what it imports replace PySpark's own readers,
writers and waits. Nothing is decided here: no module knows a job.
"""
