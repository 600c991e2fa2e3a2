"""The DAG `watch_jobs`, of the jobs that `[flinkstyle] jobs` names."""

from airflow_flinkstyle.dags import watch_dag

dag = watch_dag()
