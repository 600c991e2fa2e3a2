"""A savepoint out of its repository and into another, as a folder or as one archive.

Reads no checkpoint: what comes in is a savepoint already, and is checked byte by byte.
"""
