"""The driver's records in the store: claim and takeover, heartbeats, requests.

Knows neither Spark nor queries: what serves a request belongs in ``run``.
"""
