"""What OpenLineage's provider is told by our operators."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from openlineage.client.serde import Serde

from airflow_flinkstyle.hooks.lineage import FACET, lineage_of, places
from airflow_flinkstyle.operators import StartStreamingJobOperator, TakeSavepointOperator
from airflow_flinkstyle.protocol.query_records import QueryStatus, Reading, SourceIdentity, Writing
from airflow_flinkstyle.protocol.records import Heartbeat
from airflow_flinkstyle.types import BatchId, Incarnation
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


def extracted(operator: Any, *, complete: bool) -> Any:  # noqa: ANN401 - OpenLineage's
    """Ask as the provider's listener does."""
    manager, state = ExtractorManager(), "success" if complete else "running"
    extractor = manager.get_extractor_class(operator)(operator)
    assert type(extractor).__name__ == "DefaultExtractor", state
    return extractor.extract_on_complete(None) if complete else extractor.extract()


def test_task_says_which_topics_run_and_savepoint_it_was_about(world: World):
    world.start()
    operator = TakeSavepointOperator(task_id="take", job=world.job, deferrable=False)
    before = extracted(operator, complete=False)
    assert (before.inputs, before.run_facets[FACET].job) == ([], world.job)
    taken = operator.execute(a_context("take"))
    found = extracted(operator, complete=True)
    assert [(one.namespace, one.name) for one in found.inputs] == [("kafka://old:9092", "orders")]
    facet = json.loads(Serde.to_json(found.run_facets[FACET]))
    told = {name: facet[name] for name in ("job", "generation", "savepointId", "kafkaClusters")}
    assert told == {"job": world.job, "generation": 1, "savepointId": taken, "kafkaClusters": ["old"]}
    assert facet["batches"] == {"orders": 0}


def test_store_that_cannot_be_reached_fails_no_task(world: World):
    operator = StartStreamingJobOperator(task_id="start", job="../no", script="a.py")
    found = extracted(operator, complete=True)
    assert (found.inputs, found.outputs, found.run_facets[FACET].generation) == ([], [], None)


def a_beat(**queries: QueryStatus) -> Heartbeat:
    return Heartbeat(
        incarnation=Incarnation(1),
        state="running",
        beat=1,
        written_at_ms=1,
        spark_version="4.2.0",
        application_id="app",
        queries=queries,
    )


def test_topics_of_all_queries_are_told_once_each():
    status = QueryStatus(
        query_id="q",
        batch_id=BatchId(3),
        batch_committed_at_ms=1,
        sources={
            "0": SourceIdentity(cluster_id="c1", topic_ids={"a": "1", "b": "2"}),
            "1": SourceIdentity(cluster_id="c2", topic_ids={"c": "3"}),
        },
        reads={"0": Reading(servers="SSL://one:9092, two:9092", isolation="read_committed")},
        writes=Writing(servers="out:9092", topic="totals"),
    )
    found = lineage_of("job", None, 2, a_beat(x=status, y=status))
    assert found.inputs == (("kafka://one:9092", "a"), ("kafka://one:9092", "b"))
    assert found.outputs == (("kafka://out:9092", "totals"),)
    assert (found.clusters, found.batches) == (("c1", "c2"), {"x": 3, "y": 3})


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("s3a://bucket/out/rows", ("s3://bucket", "out/rows")),
        ("/data/out", ("file", "/data/out")),
        ("file:/data/out", ("file", "/data/out")),
        ("hdfs://name:8020/out", ("hdfs://name:8020", "out")),
    ],
)
def test_files_are_named_as_openlineage_names_them(path: str, place: tuple[str, str]):
    assert list(places(Writing(path=path))) == [place]
    assert list(places(Writing(servers="a:9092"))) == [], "each record names its own topic"


def test_operators_load_nothing_of_openlineage_so_that_they_run_without_it():
    program = (
        "import sys\nfrom airflow_flinkstyle import operators\n"
        "for name in operators.MODULES: getattr(operators, name)\n"
        "print(*(name for name in sys.modules if name.partition('.')[0] == 'openlineage'))"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert run.stdout.splitlines()[-1].strip() == ""
