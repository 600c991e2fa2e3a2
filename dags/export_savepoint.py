"""The DAG `export_savepoint`."""

from airflow_flinkstyle.dags import export_dag

dag = export_dag()
