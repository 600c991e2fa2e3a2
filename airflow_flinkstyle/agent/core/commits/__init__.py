"""Commits the offsets of committed batches for consumer groups, so that their lag can be watched.

No query and no savepoint waits for it.
"""
