"""What every cutover of a job shares: the next driver waits, the old one stops, the next one takes over.

A migration and an upgrade are made of these steps; what concerns only one of them is in its own room.
"""
