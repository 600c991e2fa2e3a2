"""Where a source begins when a person picks the position: the kinds of picks, their text, their offsets.

Reads one cluster only, and proves nothing: what compares two clusters belongs in ``translation``.
"""
