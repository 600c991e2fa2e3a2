"""Start the job of docker-compose.yml: ``docker/jobs/orders.yaml`` says what it is."""

from __future__ import annotations

from airflow_flinkstyle.dags import start_dag
from airflow_flinkstyle.hooks.defined_jobs import defined_jobs

dag = start_dag(defined_jobs().jobs["orders"])
