"""Turns the answers of a person or a DAG, as text and mappings, into the library's values.

Knows neither Airflow nor a job; the rooms beside it use the values.
"""
