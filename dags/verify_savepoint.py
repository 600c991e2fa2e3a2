"""The DAG `verify_savepoint`."""

from airflow_flinkstyle.dags import verify_dag

dag = verify_dag()
