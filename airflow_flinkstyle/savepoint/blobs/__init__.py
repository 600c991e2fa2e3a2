"""Who relies on blobs and who may free them: intents, the prune's slot, and notes that keep a savepoint.

Copies no file, and decides of no savepoint whether it stays: that is in ``retention``.
"""
