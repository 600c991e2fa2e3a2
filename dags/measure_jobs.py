"""The DAG `measure_jobs`."""

from airflow_flinkstyle.dags import measure_dag

dag = measure_dag()
