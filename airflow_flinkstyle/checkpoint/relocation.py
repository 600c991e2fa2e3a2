"""Files of a checkpoint in which its own place is written: a copy elsewhere must differ there. Pure."""

from __future__ import annotations

from airflow_flinkstyle.checkpoint import operator_metadata, schema_tracking
from airflow_flinkstyle.storage.keys import hadoop_location


def is_relocatable(path: str) -> bool:
    """Tell whether the file at ``path`` holds absolute paths, so that a copy elsewhere must differ."""
    return operator_metadata.is_relocatable(path) or schema_tracking.is_entry(path)


def relocate(path: str, content: bytes, root: str) -> bytes:
    """Return the content that a file must have in a checkpoint at ``root``, a store's ``uri``, for Spark.

    Raises:
        LogFormatError: If a relocatable file is malformed.
        FlinkstyleError: ``CHECKPOINT_UNSUPPORTED`` if its version is newer than this package knows.
    """
    root = hadoop_location(root)
    if schema_tracking.is_entry(path):
        return schema_tracking.relocate(path, content, root)
    return operator_metadata.relocate(path, content, root)
