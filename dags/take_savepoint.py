"""The DAG `take_savepoint`."""

from airflow_flinkstyle.dags import take_savepoint_dag

dag = take_savepoint_dag()
