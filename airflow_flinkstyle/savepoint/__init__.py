"""Savepoints: what a manifest says, and the errors, ids and digests that all rooms share.

The flat part is pure and imports no room; what reads or writes a store belongs in one of them.
"""
