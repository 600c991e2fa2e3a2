"""Where a position of one cluster is on another: proved by records, or by a mirror that keeps offsets.

Reads both clusters and writes to none. Positions that a person picks belong in ``start``, savepoints in
``rewrite``.
"""
