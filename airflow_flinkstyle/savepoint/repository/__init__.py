"""Where the savepoints of one job live: manifests, blobs and small records in the store, and their listing.

Knows keys and formats; who may write, free or keep what is decided in the rooms above.
"""
