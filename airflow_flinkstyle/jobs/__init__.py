"""Callers' side of the protocol: start, watch, stop, migrate and upgrade jobs, without Airflow."""
