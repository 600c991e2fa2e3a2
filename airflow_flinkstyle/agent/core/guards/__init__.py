"""What must hold before a query starts, and what it continues from.

Looks and refuses, or restores a checkpoint; never starts, stops or counts a query.
"""
