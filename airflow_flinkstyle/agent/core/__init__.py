"""The agent without a JVM: what it needs of Spark is in ``spark``, what of its process in ``process``.

``runtime`` puts the parts of its folders together. Nothing here imports PySpark or py4j.
"""
