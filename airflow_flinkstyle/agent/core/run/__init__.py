"""The parts of one run, which share a ``Driver``: take over, save, align, serve requests, end.

What wraps the script belongs in ``script``; ``runtime`` puts the parts together.
"""
