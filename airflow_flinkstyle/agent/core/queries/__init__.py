"""The queries that the script has started, and how they are stopped, held and let continue.

Why and when is not decided here, but in ``run``.
"""
