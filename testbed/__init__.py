"""Starts the real components of tests and demo: Kafka, MirrorMaker 2, an S3 server, Airflow, Spark.

Everything runs on free ports of 127.0.0.1, and nothing outlives the process that started it.
"""
