"""The DAG `adopt_job`."""

from airflow_flinkstyle.dags import adopt_dag

dag = adopt_dag()
