"""The agent without a JVM: what it asks of Spark stands in ``spark``, of its process in ``process``.

``runtime`` puts the rooms' parts together. Nothing here imports PySpark or py4j.
"""
