"""Which DAGs the page's buttons may open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.models.dag import DagModel, DagTag
from sqlalchemy import select

from airflow_flinkstyle.hooks.page_roots import ROOT_TAG, root_tag

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy.orm import Session


def fitting_dags(session: Session, dag_ids: Collection[str], conn_id: str) -> set[str]:
    """Return those of some DAGs that are there, and work on the jobs of a connection's root.

    A DAG whose file is gone stays in Airflow's database as a stale one, which cannot be triggered. One that
    knows another connection would act on the job of the same name there.
    """
    there = select(DagModel.dag_id).where(DagModel.dag_id.in_(dag_ids), DagModel.is_stale.is_(False))
    found = set(session.scalars(there))
    tags = select(DagTag.dag_id, DagTag.name).where(
        DagTag.dag_id.in_(found), DagTag.name.startswith(ROOT_TAG, autoescape=True)
    )
    elsewhere = {dag_id for dag_id, tag in session.execute(tags) if tag != root_tag(conn_id)}
    return found - elsewhere
