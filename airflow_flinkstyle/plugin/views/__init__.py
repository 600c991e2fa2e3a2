"""What is read of one job, and the plain values that the page shows of it.

The documents and ``lineage`` are pure; the readers read the store, and remember what cannot have
changed. Nothing here knows how often it is asked (``cache``), by whom, or over HTTP.
"""
