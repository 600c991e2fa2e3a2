"""A store that is read once for everybody who looks, as often as it may be.

``root_watch`` has the table of all jobs, ``pieces`` single answers; ``meter`` says when they may ask again.
"""
