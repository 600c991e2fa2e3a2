"""Which savepoints stay, with a reason for each, and the disposal of those that do not.

The right to free blobs, and its protocol, are in ``blobs``.
"""
