"""A Kubernetes of one node on this machine, without Docker or a registry.

``tools.kubernetes`` builds its programs once; ``cluster`` starts and stops it from outside of its namespaces;
``node`` is the first process inside of them.
"""
