"""Kafka clusters: identity, log ranges, and the translation of positions between two of them."""
