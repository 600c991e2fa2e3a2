"""Callers' side of the protocol, without Airflow: what a job is, what it does, what is asked of its driver.

Starting, upgrading and migrating have rooms of their own; nothing of the flat part imports a room but
``deployments``.
"""
