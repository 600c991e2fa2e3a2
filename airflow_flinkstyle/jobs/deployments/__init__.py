"""Ways to run a driver process, behind one interface."""
