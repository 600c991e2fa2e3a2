"""How a run of a job begins: where it continues from, whether it may, its claim, and its driver.

Code that keeps a run up belongs in ``relaunch``; code for a job that no driver runs, in ``stopped``.
"""
