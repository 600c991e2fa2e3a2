"""The files of a savepoint that exists: check them, copy them between stores, write them as a checkpoint.

Takes no savepoint of a query (``capture``), and deletes none (``retention``).
"""
