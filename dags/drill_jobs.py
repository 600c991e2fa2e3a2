"""The DAG `drill_jobs`, of the jobs that `[flinkstyle] jobs` names."""

from airflow_flinkstyle.dags import drill_jobs_dag

dag = drill_jobs_dag()
