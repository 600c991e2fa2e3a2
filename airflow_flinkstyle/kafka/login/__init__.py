"""How a driver logs in to a cluster: Java's names for the settings, and their way to the driver.

Reaches no cluster; how Python's clients log in belongs in ``kafka/settings.py``.
"""
