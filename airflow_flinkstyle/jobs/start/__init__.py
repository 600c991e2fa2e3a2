"""How a run of a job begins: where it continues from, whether it may, its claim, and its driver.

What keeps a run up belongs in ``relaunch``, what is done with a job that no driver runs in ``stopped``.
"""
