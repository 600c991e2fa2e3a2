"""Spark's rows as it keeps them in state, to Arrow and back, without a JVM.

``UnsafeRow`` is the format of keys and values in every state store: fields of 8 bytes, what is longer behind
them. All work is on whole columns (numpy); nothing here knows checkpoints, stores or Spark sessions.

Source: Spark's ``UnsafeRow``, ``UnsafeArrayData``, ``UnsafeMapData`` and their writers, alike in 3.5 to 4.3.
"""

from airflow_flinkstyle.state.rows.decode import decode_rows
from airflow_flinkstyle.state.rows.encode import encode_rows

__all__ = ["decode_rows", "encode_rows"]
