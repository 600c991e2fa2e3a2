"""Which DAGs are there, and which of them the page's buttons may open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.models.dag import DagModel, DagTag
from sqlalchemy import select

from airflow_flinkstyle.hooks.page_roots import DEFAULT_CONNECTION, ONE_ROOT_TAG, ROOT_TAG, root_tag
from airflow_flinkstyle.hooks.root_rights import is_listed

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy.orm import Session


def dags_there(session: Session, dag_ids: Collection[str]) -> set[str]:
    """Return those of some DAGs that are there.

    A DAG whose file is gone stays in Airflow's database as a stale one.
    """
    there = select(DagModel.dag_id).where(DagModel.dag_id.in_(dag_ids), DagModel.is_stale.is_(False))
    return set(session.scalars(there))


def fitting_dags(
    session: Session, dag_ids: Collection[str], conn_id: str, listed: Collection[str] | None = None
) -> set[str]:
    """Return those of some DAGs that are there, and may act on the jobs of a connection's root.

    A DAG that knows another connection would act on the job of the same name there, also if a pattern of
    this root's list fits its name. One that asks for the connection may act on its own default, and on a root
    that lists it.

    Args:
        session: Of Airflow's database.
        dag_ids: To choose from.
        conn_id: The root's connection.
        listed: ``dags`` of that connection.
    """
    found = dags_there(session, dag_ids)
    tags = select(DagTag.dag_id, DagTag.name).where(
        DagTag.dag_id.in_(found),
        DagTag.name.startswith(ROOT_TAG, autoescape=True) | (DagTag.name == ONE_ROOT_TAG),
    )
    roots: dict[str, set[str]] = {dag_id: set() for dag_id in found}
    for dag_id, tag in session.execute(tags):
        roots[dag_id].add(tag)
    return {dag_id for dag_id, own in roots.items() if _fits(dag_id, own, conn_id, listed)}


def _fits(dag_id: str, tags: Collection[str], conn_id: str, listed: Collection[str] | None) -> bool:
    is_its_root = root_tag(conn_id) in tags
    if listed is None:
        return is_its_root or (not tags and conn_id == DEFAULT_CONNECTION)
    return is_listed(dag_id, listed) and (is_its_root or ONE_ROOT_TAG not in tags)
