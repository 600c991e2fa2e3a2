"""Keep producers from writing to topics, by ACL entries, and prove that nobody writes to them any more.

Knows neither jobs nor migrations: when a fence goes up and comes down is decided in ``jobs``.
"""
