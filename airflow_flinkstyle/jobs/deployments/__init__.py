"""Ways to run a driver, behind one interface: on this machine, or on a cluster that holds the driver.

``chosen`` picks one by the Spark connection; what a cluster is asked goes through ``rest``.
"""
