"""What is put around PySpark for an unmodified script: its readers, writers and waits.

Decides nothing: it remembers, sets options and asks the agent.
"""
