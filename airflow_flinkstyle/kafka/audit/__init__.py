"""What a topic holds for its readers: each id once or not, and the transactions that hold its end back.

Reads one cluster, and ends transactions of dead producers there; knows no savepoint and no mirror.
"""
