"""Kafka clusters: how they are reached, what they hold, and the verdict on a position.

What only one folder needs lives in that folder; the modules beside the folders import none of them.
"""
