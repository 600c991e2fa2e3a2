"""A store that is read once for all viewers, as often as its budget of requests allows.

``root_watch`` has the table of all jobs, ``pieces`` single answers; ``storage.meter`` counts the budget.
"""
