"""The DAG `replay_job`."""

from airflow_flinkstyle.dags import replay_dag

dag = replay_dag()
