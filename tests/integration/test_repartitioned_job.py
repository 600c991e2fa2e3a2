"""A job that is stopped, repartitioned by the command line, and started from what that made."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.checkpoint.offset_log import SOURCE_EVOLUTION
from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.jobs.errors import UPGRADE_ROLLED_BACK, DriverFailedError
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.jobs.upgrade.repartition import with_changes, with_partitions, with_provider
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.savepoint.compat import PROVIDER, ROCKSDB_CLASS, SOURCE_NAMES
from airflow_flinkstyle.types import Generation
from testbed import paths
from testbed.keys import SIGNER
from testbed.refusals import refuses
from testbed.spark import spark_paths
from tests.golden.stateful import ROCKSDB
from tests.integration.detached_lab import COUNTS, FROM_FILES, TIMEOUT_S, Lab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.jobs.spec import JobSpec
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.nightly]


@pytest.fixture
def lab(tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    lab = Lab(tmp_path, warm=warm_jvms)
    yield lab
    lab.close()


def on_rocksdb(spec: JobSpec, partitions: int) -> JobSpec:
    return replace(spec, conf={**ROCKSDB, "spark.sql.shuffle.partitions": str(partitions)})


def repartitioned(lab: Lab, savepoint_id: str, partitions: int) -> str:
    words = ["savepoint", "repartition", savepoint_id, "--partitions", str(partitions), "--json"]
    words += ["--root", str(lab.folder / "root"), "--job", "counts"]
    words += ["--python", str(paths.VENV_SPARK / "bin/python")]
    env = {**os.environ, **spark_paths().env, "PYTHONPATH": str(paths.ROOT)}
    done = CliRunner().invoke(app, words, env=env)
    assert done.exit_code == 0, done.stderr
    return str(json.loads(done.stdout)["rows"][0]["savepoint"])


@pytest.mark.matrix
def test_stopped_job_goes_on_in_another_number_of_partitions_and_counts_each_row_once(lab: Lab):
    client = lab.client
    client.starts.start(on_rocksdb(lab.spec(), 2), lab.target(), claim_key="run-1/start")
    lab.until_committed_beyond(2)
    stopped = client.requests.stop("run-1/stop", savepoint=True, timeout_s=TIMEOUT_S)
    assert isinstance(stopped, Stopped)
    made = repartitioned(lab, str(stopped.savepoint_id), 5)

    origin = FromSavepoint(savepoint_id=made)
    old = client.starts.start(on_rocksdb(lab.spec(), 2), lab.target(), claim_key="run-2/start", origin=origin)
    with pytest.raises(DriverFailedError, match=r"(?s)is 5 there and 2 here.*savepoint repartition"):
        client.drivers.wait_running(old.generation, timeout_s=TIMEOUT_S)
    second = client.starts.start(
        on_rocksdb(lab.spec(), 5), lab.target(), claim_key="run-3/start", origin=origin
    )
    at = lab.until_committed_beyond(stopped.batches["counts"] + 1)
    client.requests.stop("run-3/stop", savepoint=False, timeout_s=TIMEOUT_S)
    log = offset_log.parse((lab.folder / second.checkpoint_location / f"counts/offsets/{at}").read_text())
    assert log.confs["spark.sql.shuffle.partitions"] == "5"
    numbers = [json.loads(line)["batch"] for line in lab.out.read_text().splitlines()]
    assert numbers == list(range(len(numbers))), "no batch number twice, none left out"
    lab.judge()


def upgraded(lab: Lab, partitions: int) -> int:
    """Upgrade to another number of partitions, rehearsed; returns the newest batch, which was run in it."""
    client, key = lab.client, f"to-{partitions}"
    report = Upgrade(
        client=client,
        journal=CutoverJournal(client.view.board.store, "counts", key, UPGRADE_PHASES, signer=SIGNER),
        spec=with_partitions(on_rocksdb(lab.spec(), partitions), partitions),
        target=lab.target(),
        rehearse=Rehearse(batches=1),
    ).run()
    assert report.rehearsal is not None
    assert (
        f"| spark.sql.shuffle.partitions | {partitions} | {partitions} | compatible |"
        in (report.rehearsal["table"])
    )
    at = lab.until_committed_beyond(client.view.repository.read(report.savepoint_id).queries[0].batch_id + 1)
    place = client.view.claim(client.view.board.current().value.generation).checkpoint_location
    log = offset_log.parse((lab.folder / place / f"counts/offsets/{at}").read_text())
    assert log.confs["spark.sql.shuffle.partitions"] == str(partitions)
    return at


def test_upgrade_spreads_the_state_over_more_partitions_and_back_while_rows_come(lab: Lab):
    client = lab.client
    client.starts.start(on_rocksdb(lab.spec(), 8), lab.target(), claim_key="run-1/start")
    lab.until_committed_beyond(2)
    upgraded(lab, 16)
    upgraded(lab, 8)
    client.requests.stop("end", savepoint=True, timeout_s=TIMEOUT_S)
    ids = client.view.repository.ids()
    compared = [one for one in ids if one.startswith("sp-repartition-")]
    assert len(compared) == 4, "of each hot savepoint, and of each stop's, every key was compared"
    numbers = [json.loads(line)["batch"] for line in lab.out.read_text().splitlines()]
    assert numbers == list(range(len(numbers)))
    lab.judge()


ONES = COUNTS.replace(
    'F.max("value").alias("top"))', 'F.max("value").alias("top"), F.sum(F.lit(1)).alias("ones"))'
).replace('F.sum("n").alias("n")', 'F.sum("ones").alias("n")')
"""A version that keeps one number more, and tells its counts by that one."""


def test_upgrade_adds_a_column_to_the_state_while_rows_come(lab: Lab):
    client = lab.client
    old = client.starts.start(on_rocksdb(lab.spec(), 2), lab.target(), claim_key="run-1/start")
    lab.until_committed_beyond(2)
    (lab.folder / "of_counts.py").write_text(
        "from airflow_flinkstyle.state import AddColumn\n"
        "def added(): return {0: AddColumn('sum', 'value.count')}\n"
        "narrow = {0: AddColumn('sum', 'CAST(value.count AS INT)')}\n"
    )
    new = on_rocksdb(lab.spec(ONES, "ones.py"), 2)

    def upgrade(changes: str, key: str) -> Upgrade:
        return Upgrade(
            client=client,
            journal=CutoverJournal(client.view.board.store, "counts", key, UPGRADE_PHASES, signer=SIGNER),
            spec=with_changes(new, changes, asked=key, before=old.generation),
            target=lab.target(),
            rehearse=Rehearse(batches=1),
        )

    with refuses(UPGRADE_ROLLED_BACK, match=r"(?s)value_schema.*The old version runs"):
        upgrade("of_counts:narrow", "narrow").run()
    current = client.view.board.current()
    assert current is not None
    assert current.value.generation == old.generation
    report = upgrade("of_counts:added", "added").run()
    assert report.rehearsal is not None
    assert "the window does it once more, while the job is down" in report.rehearsal["table"]
    stopped = client.requests.stop("end", savepoint=True, timeout_s=TIMEOUT_S)
    assert isinstance(stopped, Stopped)
    changed = [one for one in client.view.repository.ids() if one.startswith("sp-changed-")]
    assert len(changed) == 3, "of each hot savepoint, and of the stop's"
    again = replace(new, conf=client.view.launch_of(Generation(report.generation))[0].conf)
    client.starts.start(again, lab.target(), claim_key="run-2/start")
    lab.until_committed_beyond(stopped.batches["counts"] + 1)
    client.requests.stop("run-2/stop", savepoint=False, timeout_s=TIMEOUT_S)
    assert [one for one in client.view.repository.ids() if one.startswith("sp-changed-")] == changed
    numbers = [json.loads(line)["batch"] for line in lab.out.read_text().splitlines()]
    assert numbers == list(range(len(numbers)))
    lab.judge()


@pytest.mark.matrix
def test_upgrade_moves_the_state_to_rocksdb_while_rows_come(lab: Lab):
    client = lab.client
    client.starts.start(lab.spec(), lab.target(), claim_key="run-1/start")
    lab.until_committed_beyond(2)
    report = Upgrade(
        client=client,
        journal=CutoverJournal(
            client.view.board.store, "counts", "to-rocksdb", UPGRADE_PHASES, signer=SIGNER
        ),
        spec=with_provider(lab.spec(), "rocksdb"),
        target=lab.target(),
        rehearse=Rehearse(batches=1),
    ).run()
    assert report.rehearsal is not None
    at = lab.until_committed_beyond(client.view.repository.read(report.savepoint_id).queries[0].batch_id + 1)
    place = client.view.claim(client.view.board.current().value.generation).checkpoint_location
    log = offset_log.parse((lab.folder / place / f"counts/offsets/{at}").read_text())
    assert log.confs[PROVIDER] == ROCKSDB_CLASS
    client.requests.stop("end", savepoint=True, timeout_s=TIMEOUT_S)
    moved = [one for one in client.view.repository.ids() if one.startswith("sp-rocksdb-")]
    assert len(moved) == 2, "of the hot savepoint, and of the stop's, every key was compared"
    numbers = [json.loads(line)["batch"] for line in lab.out.read_text().splitlines()]
    assert numbers == list(range(len(numbers)))
    lab.judge()


NAMED = COUNTS.replace("spark.readStream.format", 'spark.readStream.name("numbers").format')


@pytest.mark.matrix
def test_upgrade_gives_the_source_a_name_and_takes_it_back_while_rows_come(lab: Lab):
    client = lab.client
    client.starts.start(lab.spec(), lab.target(), claim_key="run-1/start")
    lab.until_committed_beyond(2)
    by_name = {SOURCE_EVOLUTION: "true", "spark.sql.streaming.offsetLog.formatVersion": "2"}
    for script, confs, names, version in (
        (NAMED, by_name, {"0": "numbers"}, "v2"),
        (COUNTS, {}, {"numbers": "0"}, "v1"),
    ):
        spec = lab.spec(script, f"{version}.py")
        asked = {**spec.conf, **confs, SOURCE_NAMES: json.dumps({"counts": names})}
        report = Upgrade(
            client=client,
            journal=CutoverJournal(client.view.board.store, "counts", version, UPGRADE_PHASES, signer=SIGNER),
            spec=replace(spec, conf=asked),
            target=lab.target(),
            rehearse=Rehearse(batches=1),
        ).run()
        assert report.rehearsal is not None
        at = lab.until_committed_beyond(
            client.view.repository.read(report.savepoint_id).queries[0].batch_id + 1
        )
        place = client.view.claim(client.view.board.current().value.generation).checkpoint_location
        assert (lab.folder / place / f"counts/offsets/{at}").read_text().startswith(version)
    client.requests.stop("end", savepoint=True, timeout_s=TIMEOUT_S)
    numbers = [json.loads(line)["batch"] for line in lab.out.read_text().splitlines()]
    assert numbers == list(range(len(numbers)))
    lab.judge()


@pytest.mark.matrix
def test_job_that_a_table_has_begun_counts_on(lab: Lab):
    """The table holds the counts of numbers 0 to 69; files bring the others."""
    table, files = lab.folder / "counted.json", lab.folder / "in"
    rows = [{"k": k, "count": 10, "max": 63 + k} for k in range(7)]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files.mkdir()
    for first in range(70, 130, 20):
        numbered = "".join(f'{{"id": {number}}}\n' for number in range(first, first + 20))
        (files / f"{first}.json").write_text(numbered)
    spec = lab.spec(FROM_FILES)
    words = ["savepoint", "bootstrap", spec.script, "--arg", str(lab.out), "--json"]
    sql = f"0=SELECT * FROM json.`{table}`"  # noqa: S608 - our own file
    words += ["--table", sql, "--conf", "spark.sql.shuffle.partitions=2"]
    words += ["--root", str(lab.folder / "root"), "--job", "counts"]
    words += ["--python", str(paths.VENV_SPARK / "bin/python")]
    env = {**os.environ, **spark_paths().env, "PYTHONPATH": str(paths.ROOT)}
    done = CliRunner().invoke(app, words, env=env)
    assert done.exit_code == 0, done.stderr
    [made] = json.loads(done.stdout)["rows"]
    assert (made["query"], made["batch"], made["keys"]) == ("counts", 0, 7)
    assert not lab.out.exists()
    lab.client.starts.start(
        spec, lab.target(), claim_key="run-1/start", origin=FromSavepoint(savepoint_id=made["savepoint"])
    )
    lab.until_committed_beyond(2)
    lab.client.requests.stop("end", savepoint=True, timeout_s=TIMEOUT_S)
    lab.judge()
    assert json.loads(lab.out.read_text().splitlines()[-1])["n"] == 130
