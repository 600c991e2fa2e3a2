"""The DAG `roll_back`."""

from airflow_flinkstyle.dags import roll_back_dag

dag = roll_back_dag()
