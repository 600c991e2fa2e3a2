"""The commands about Kafka, and how a cluster is named to them.

``mirror``, ``offsets``, ``topic`` and ``transactions``; what works without a broker stays outside.
"""
