"""A driver as a pod of Kubernetes: how it is made (``makers``), and what its pod's record means (``pods``).

``deployment`` is what callers use. A maker makes the pod: ``spark-submit`` here, or an operator of the
cluster from a ``SparkApplication``. From then on all pods are treated alike.
"""
