"""``python -m airflow_flinkstyle.cli``: the same as ``flinkstyle``."""

from __future__ import annotations

from airflow_flinkstyle.cli.main import main

main()
