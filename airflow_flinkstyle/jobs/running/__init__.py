"""One version of a job on its cluster: start its driver, wait for it, stop it, take its savepoints.

What changes the version belongs in ``upgrade``, what changes the Kafka cluster in ``migration``.
"""
