"""Whether a task waits in the triggerer."""

from __future__ import annotations

from airflow_flinkstyle.hooks.airflow_versions import conf


def is_deferrable(asked: bool | None) -> bool:
    """Return what was asked for; where nothing was, what Airflow's configuration says."""
    return conf.getboolean("operators", "default_deferrable", fallback=False) if asked is None else asked
