"""Ways to run a driver, behind one interface: on this machine, or on a cluster that holds the driver.

Each is a frozen value with its own fields (``Detached``, ``Standalone``, ``Yarn``, ``Kubernetes``) beside the
class that uses it. ``jobs.target`` chooses one by master and deploy mode; requests to a cluster go through
``rest``, and ``spark_submit`` hands drivers over to it.
"""
