"""The DAG `fail_back`."""

from airflow_flinkstyle.dags import fail_back_dag

dag = fail_back_dag()
