"""From a checkpoint to a savepoint: read the logs, copy the files, publish the manifest last.

Only makes savepoints; the way from a savepoint to a checkpoint is in ``files``.
"""
