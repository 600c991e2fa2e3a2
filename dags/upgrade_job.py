"""The DAG `upgrade_job`."""

from airflow_flinkstyle.dags import upgrade_dag

dag = upgrade_dag()
