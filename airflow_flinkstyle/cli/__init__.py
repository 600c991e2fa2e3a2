"""The command ``flinkstyle``: what the operators do, without Airflow and without PySpark."""
