"""Seeded runs of take, stop, relaunch and migrate while the way to a real S3 server has bad minutes.

The callers, the agent and the store's client are the package's own. Spark and Kafka are pretended: a driver is
a process whose query commits batches in a real checkpoint on disk (``driver``). ``python -m tests.bad_minutes``.
"""
