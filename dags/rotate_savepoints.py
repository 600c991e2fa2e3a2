"""The DAG `rotate_savepoints`, of the jobs that `[flinkstyle] jobs` names."""

from airflow_flinkstyle.dags import rotation_dag

dag = rotation_dag()
