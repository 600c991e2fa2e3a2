"""Savepoints at random moments under load: each is compared at its own offsets and started by Spark."""

from __future__ import annotations

import functools
import json
import random
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.savepoint.restore import restore_query
from airflow_flinkstyle.storage.local import LocalStore
from testbed.drivers import SPARK_PYTHON, spark_conf, spark_env
from testbed.judge import judge
from testbed.ledger import read_ledger
from testbed.scenario import ORDERS_JOB, OrdersScenario, committed_offsets, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from testbed.judge import StateReader
    from testbed.ledger import Entry
    from tests.conftest import KafkaPair

pytestmark = pytest.mark.e2e

SAVEPOINTS = 20
RATE_PER_S = 1500.0
STATE = "spark.sql.streaming.stateStore"
HASTY = {
    f"{STATE}.maintenanceInterval": "1s",
    f"{STATE}.minDeltasForSnapshot": "3",
    "spark.sql.streaming.minBatchesToRetain": "3",
}
"""Files are replaced and deleted all the time, so that a capture that looks twice sees two states."""
RESTART = Path(__file__).parent / "scripts" / "run_to_the_end.py"


@pytest.fixture
def scenario(tmp_path: Path, kafka_pair: KafkaPair) -> Iterator[OrdersScenario]:
    """A job on a topic that is not mirrored, with batches back to back."""
    with OrdersScenario(
        folder=tmp_path, old=kafka_pair.old, new=kafka_pair.new, topic="hot-savepoints"
    ) as scenario:
        scenario.create_topic(deleted={0: 100, 1: 40})
        scenario.spec = replace(scenario.spec, args=(*scenario.spec.args, "--trigger", "0 seconds"))
        scenario.target = replace(scenario.target, conf={**scenario.target.conf, **HASTY})
        yield scenario


def test_20_hot_savepoints_at_random_moments_are_true_at_their_own_offsets_and_start(
    scenario: OrdersScenario, reader: StateReader, tmp_path: Path
):
    seed = random.SystemRandom().randrange(1_000_000)
    print("seed", seed)  # noqa: T201  (shown when the test fails)
    scenario.start_producer(rate_per_s=RATE_PER_S)
    scenario.start()
    manifests = take_at_random_moments(scenario, random.Random(seed))  # noqa: S311  (moments, not secrets)
    live = scenario.checkpoint()
    scenario.client.stop("stop", savepoint=False, timeout_s=60)
    scenario.end_producer()
    assert len({snapshot_of(manifest).batch_id for manifest in manifests}) == SAVEPOINTS
    assert replaced_since(live, snapshot_of(manifests[0])), "Spark never deleted what a savepoint holds"

    ledger = list(read_ledger(scenario.ledger))
    copies = [tmp_path / "copies" / manifest.savepoint_id for manifest in manifests]
    for manifest, copy in zip(manifests, copies, strict=True):
        restore_query(manifest, snapshot_of(manifest), scenario.client.repository, LocalStore(copy))
        judgement = judge(read_until(manifest, ledger, scenario.topic), reader.read(copy))
        assert judgement.counted, f"{manifest.savepoint_id} holds no orders"
        assert judgement.right, f"{manifest.savepoint_id}: {judgement}"

    run_to_the_end(scenario, copies)
    for manifest, copy in zip(manifests, copies, strict=True):
        committed = committed_offsets(copy)
        assert committed is not None
        assert committed[0] == snapshot_of(manifest).batch_id + 1
        judgement = judge(ledger, reader.read(copy))
        assert judgement.right, f"{manifest.savepoint_id}, started: {judgement}"


def take_at_random_moments(scenario: OrdersScenario, moments: random.Random) -> list[Manifest]:
    manifests = []
    for number in range(SAVEPOINTS):
        time.sleep(moments.uniform(0, 1.2))
        savepoint_id = scenario.hot_savepoint(key=f"hot-{number}")
        manifest = scenario.client.repository.read(savepoint_id)
        manifests.append(manifest)
        ran_on = functools.partial(has_committed_after, manifest, scenario.checkpoint())
        wait_until("a batch after the savepoint's", ran_on, timeout_s=60)
    return manifests


def has_committed_after(manifest: Manifest, live: Path) -> bool:
    """Look at the files' names only: the files may be gone in a moment."""
    committed = [int(path.name) for path in (live / "commits").glob("[0-9]*")]
    return max(committed) > snapshot_of(manifest).batch_id


def snapshot_of(manifest: Manifest) -> QuerySnapshot:
    (snapshot,) = manifest.queries
    return snapshot


def replaced_since(live: Path, snapshot: QuerySnapshot) -> list[str]:
    """Return the savepoint's state files that the job's own checkpoint no longer has."""
    state = [entry.path for entry in snapshot.files if entry.path.startswith("state/")]
    return [path for path in state if not (live / path).exists()]


def read_until(manifest: Manifest, ledger: list[Entry], topic: str) -> list[Entry]:
    """Return the orders that stand before the savepoint's positions; all were acknowledged."""
    positions = snapshot_of(manifest).kafka["0"].offsets[topic]
    assert all(entry.offset is not None for entry in ledger)
    return [entry for entry in ledger if (entry.offset or 0) < positions[entry.order.partition]]


def run_to_the_end(scenario: OrdersScenario, checkpoints: list[Path]) -> None:
    settings = {
        "conf": spark_conf(),
        "args": ["--bootstrap", scenario.old.bootstrap, "--topic", scenario.topic],
        "checkpoints": [str(checkpoint) for checkpoint in checkpoints],
    }
    done = subprocess.run(
        [str(SPARK_PYTHON), str(RESTART), str(ORDERS_JOB), json.dumps(settings)],
        env=spark_env(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-5000:]
