"""The DAG `leave_job`."""

from airflow_flinkstyle.dags import leave_dag

dag = leave_dag()
