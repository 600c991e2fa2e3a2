"""Random histories of a job: the real callers, board and repository, a small driver, virtual time, an oracle.

No JVM, no thread, no wait: whoever sleeps lets the others run, so that a seed tells all that happens.
"""
