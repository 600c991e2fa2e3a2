"""PySpark and its JVM, as ``agent.core`` asks them, and what is put around PySpark for an unmodified script.

``session`` and ``starts`` answer the core; ``wrapping`` and what it imports take the place of PySpark's own
readers, writers and waits. Nothing is decided here: no room knows a job.
"""
