"""From one version of a job to the next, and back if that fails before it commits.

Stays on the same Kafka cluster; how a driver starts and stops is in ``running``.
"""
