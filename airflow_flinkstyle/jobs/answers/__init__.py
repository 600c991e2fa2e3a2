"""What a person or a DAG answers, as text and mappings, turned into the library's values.

Knows neither Airflow nor a job; what is done with the values belongs in the rooms beside it.
"""
