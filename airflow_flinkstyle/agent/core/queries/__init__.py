"""The queries that the script has started, and how they are stopped, held and resumed.

``run`` decides why and when.
"""
