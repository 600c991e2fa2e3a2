"""Kafka clusters: how they are reached, what they hold, and the verdict on a position.

What one room alone needs lives in that room, and nothing of the flat part imports a room.
"""
