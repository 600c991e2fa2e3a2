"""The DAG `compare_versions`."""

from airflow_flinkstyle.dags import compare_dag

dag = compare_dag()
