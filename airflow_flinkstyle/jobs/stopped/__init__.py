"""A job that no driver runs: what its last run left, and what a caller does in a driver's place.

Nothing here starts or ends a driver.
"""
