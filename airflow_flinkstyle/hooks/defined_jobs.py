"""The jobs that this Airflow knows: the definitions that ``[flinkstyle] jobs`` names.

``[flinkstyle] jobs`` of Airflow's configuration (``AIRFLOW__FLINKSTYLE__JOBS``): a YAML file, or a folder of
them (``jobs.definition``), where DAG files are parsed and where tasks run.
"""

from __future__ import annotations

from airflow_flinkstyle.jobs.definition import Definitions, read_definitions

UNSET = "[flinkstyle] jobs: expected a folder with definitions of jobs, found none"


def defined_jobs() -> Definitions:
    """Return the jobs that the configuration names, and the faults of definitions that cannot be used."""
    from airflow_flinkstyle.hooks.airflow_versions import conf

    place = conf.get("flinkstyle", "jobs", fallback="").strip()
    return read_definitions(place) if place else Definitions(jobs={}, faults=(UNSET,))
