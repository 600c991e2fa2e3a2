"""What two runs of a query have computed, compared by Spark: their rows, then their state.

Nothing here starts a query, and all data stays with Spark, which spills what does not fit into memory.
"""
