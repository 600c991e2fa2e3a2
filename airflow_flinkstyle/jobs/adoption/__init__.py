"""Jobs that plain Spark runs: their savepoints from outside, adoption stopped or running, and the way back.

A caller reads a checkpoint here that no agent wrote, so whatever the agent would have recorded (clusters,
topic ids, sinks, Spark's version) is taken from the live cluster or from a person, and named as
such. How a job starts and stops here belongs in ``running``; how files are captured and restored in
``savepoint``.
"""
