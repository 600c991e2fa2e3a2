"""A driver as a pod of Kubernetes: how it is made (``makers``), and what its pod says (``pods``).

``deployment`` is what callers use. A maker makes the pod: ``spark-submit`` here, or an operator of the
cluster from a ``SparkApplication``. From then on a pod is a pod, whoever made it.
"""
