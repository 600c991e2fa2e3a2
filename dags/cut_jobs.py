"""The DAG `cut_jobs`."""

from airflow_flinkstyle.dags import cut_dag

dag = cut_dag()
