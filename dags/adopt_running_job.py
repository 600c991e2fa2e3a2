"""The DAG `adopt_running_job`."""

from airflow_flinkstyle.dags import adopt_running_dag

dag = adopt_running_dag()
