"""The DAG `settle_job`."""

from airflow_flinkstyle.dags import settle_dag

dag = settle_dag()
