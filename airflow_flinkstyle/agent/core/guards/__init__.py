"""What must hold before a query starts, and what it continues from.

Checks and refuses, or restores a checkpoint; never starts, stops or counts a query.
"""
