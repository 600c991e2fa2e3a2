"""What must hold before a query starts, and what it goes on from.

Looks and refuses, or restores a checkpoint; never starts, stops or counts a query.
"""
