"""Where a source begins when a person picks the position: the kinds of picks, their text, their offsets.

Looks at one cluster only, and proves nothing: what compares two clusters belongs in ``translation``.
"""
