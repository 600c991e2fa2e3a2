"""The DAG `dispose_savepoints`."""

from airflow_flinkstyle.dags import dispose_dag

dag = dispose_dag()
