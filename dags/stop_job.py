"""The DAG `stop_job`."""

from airflow_flinkstyle.dags import stop_dag

dag = stop_dag()
