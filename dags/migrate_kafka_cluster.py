"""The DAG `migrate_kafka_cluster`."""

from airflow_flinkstyle.dags import migration_dag

dag = migration_dag()
