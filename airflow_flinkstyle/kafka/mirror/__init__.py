"""MirrorMaker 2: its settings, the notes in its topics, how far it is, and where it is to begin.

Reads what the mirror notes about itself; whether the records agree is proved in ``translation``.
"""
