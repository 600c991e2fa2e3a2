"""Which DAGs a button opens, by Airflow's own tables in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from airflow.models.dag import DagModel, DagTag
from airflow.sdk import Param
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from airflow_flinkstyle.dags import stop_dag
from airflow_flinkstyle.jobs.definition import SparkStreamingJob
from airflow_flinkstyle.plugin.button_dags import fitting_dags

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow.sdk import DAG

pytestmark = pytest.mark.airflow
PRODUCTION = SparkStreamingJob(job="orders", script="a.py", flinkstyle_conn_id="flinkstyle_production")


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    tables = [DagModel.__table__, DagTag.__table__]
    DagModel.metadata.create_all(engine, tables=tables)
    with Session(engine) as session:
        yield session


def parsed(session: Session, dag: DAG, *, gone: bool = False) -> str:
    """Let Airflow know a DAG, or have known it."""
    session.add(DagModel(dag_id=dag.dag_id, bundle_name="dags", is_stale=gone, is_paused=False))
    session.flush()
    session.add_all(DagTag(dag_id=dag.dag_id, name=tag) for tag in dag.tags)
    session.flush()
    return dag.dag_id


def test_dag_of_a_job_below_another_root_is_not_opened_for_its_namesake(session: Session):
    own, any_job = parsed(session, stop_dag(PRODUCTION)), parsed(session, stop_dag())
    assert fitting_dags(session, [own, any_job], "flinkstyle_production") == {own}
    assert fitting_dags(session, [own, any_job], "flinkstyle_default") == {any_job}
    assert fitting_dags(session, [own, any_job], "flinkstyle_staging") == set()


def test_list_of_a_root_opens_no_dag_that_knows_another_one(session: Session):
    own = parsed(session, stop_dag(PRODUCTION))
    assert fitting_dags(session, [own], "flinkstyle_staging", ["stop_job*"]) == set()
    assert fitting_dags(session, [own], "flinkstyle_production", ["stop_job*"]) == {own}
    assert fitting_dags(session, [own], "flinkstyle_production", ["upgrade_job"]) == set()


def test_tags_of_the_root_are_beside_those_of_the_author(session: Session):
    own = parsed(session, stop_dag(PRODUCTION, tags=["team"]))
    assert fitting_dags(session, [own], "flinkstyle_default") == set()
    assert fitting_dags(session, [own], "flinkstyle_production") == {own}


def test_dag_that_is_told_the_connection_fits_its_default_and_each_root_that_lists_it(session: Session):
    own = parsed(session, stop_dag("orders"))
    assert fitting_dags(session, [own], "flinkstyle_default") == {own}
    assert fitting_dags(session, [own], "flinkstyle_staging") == set()
    assert fitting_dags(session, [own], "flinkstyle_staging", ["stop_job_*"]) == {own}
    assert fitting_dags(session, [own], "flinkstyle_default", ["upgrade_job"]) == set()


def test_dag_whose_form_offers_some_roots_fits_these(session: Session):
    offers = Param("flinkstyle_shop", type="string", enum=["flinkstyle_shop", "flinkstyle_web"])
    own = parsed(session, stop_dag("orders", flinkstyle_conn_id=offers))
    for conn_id, fits in {"shop": {own}, "web": {own}, "default": set(), "billing": set()}.items():
        assert fitting_dags(session, [own], f"flinkstyle_{conn_id}") == fits


def test_dag_for_any_job_of_one_root_is_for_that_root(session: Session):
    long = "flinkstyle_" + "x" * 200
    dag_id = parsed(session, stop_dag(flinkstyle_conn_id=long))
    assert fitting_dags(session, [dag_id], long) == {dag_id}
    assert fitting_dags(session, [dag_id], "flinkstyle_default") == set()


def test_dag_whose_file_is_gone_is_not_opened(session: Session):
    own, any_job = parsed(session, stop_dag("orders"), gone=True), parsed(session, stop_dag())
    assert fitting_dags(session, [own, any_job], "flinkstyle_default") == {any_job}
