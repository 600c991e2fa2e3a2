"""The DAG `drill_restore`, of the jobs that `[flinkstyle] jobs` names."""

from airflow_flinkstyle.dags import drill_dag

dag = drill_dag()
