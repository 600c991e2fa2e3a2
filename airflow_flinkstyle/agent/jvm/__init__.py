"""What belongs to Spark's JVM, to Hadoop's file systems and to the operating system, as the agent reaches it.

Knows no job: what a query or a run does with it belongs in the rooms above.
"""
