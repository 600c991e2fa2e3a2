"""The DAG `drill_restore`."""

from airflow_flinkstyle.dags import drill_dag

dag = drill_dag()
