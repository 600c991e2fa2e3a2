"""The DAG `start_job`."""

from airflow_flinkstyle.dags import start_dag

dag = start_dag()
