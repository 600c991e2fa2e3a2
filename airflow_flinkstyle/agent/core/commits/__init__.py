"""Offsets of committed batches, committed for consumer groups of people who watch a lag.

Nothing here is waited for by a query or a savepoint.
"""
