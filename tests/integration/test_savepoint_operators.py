"""Every stateful operator and provider: a hot savepoint, restored, must go on as the unbroken query did.

The source gives each batch the same rows whenever it runs. The live query runs on; that is the unbroken run.
Its checkpoint is then deleted, the savepoint restored elsewhere, and each batch of the restored query must
write what the live one wrote in it.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.checkpoint import commit_log
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3_settings import S3Settings
from testbed import paths
from testbed.session import local_session
from tests.golden.stateful import CASES, STATE
from tests.integration.operator_lab import as_between_batches, assert_goes_on, lab_of, take_while_it_runs
from tests.nightly import nightly_but

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from testbed.s3 import S3Server
    from testbed.spark import SparkPaths
    from tests.integration.operator_lab import OperatorLab

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

VERSION = tuple(int(part) for part in (paths.SPARK or "4.2").split("."))
LOCAL = [case for case in CASES if case.since <= VERSION and case.name not in {"kafka", "stateless"}]
GOLDEN = Path(__file__).parent.parent / "golden"
OLDER = [
    golden
    for golden in (
        *("3.5.9/hdfs", "3.5.9/rocksdb-changelog", "4.0.5/format-v2-changelog", "4.0.5/transform-with-state"),
        *("4.1.4/rocksdb", "4.1.4/transform-with-state-v2"),
    )
    if tuple(int(part) for part in golden.split(".")[:2]) < VERSION
]
WAITED_FOR = {"hdfs", "rocksdb", "format-v2-changelog", "join-one-store", "transform-with-state-v2"}
"""Each provider, each format, and the two operators whose files name others."""
AT_NIGHT = {"transform-with-state", "named-sources"}
"""And by `make nightly` what is kept in a way of its own; all others by `make matrix`."""
BY_PROVIDER_AND_OPERATOR = nightly_but(
    lambda case: case.name in WAITED_FOR, LOCAL, matrix=lambda case: case.name not in AT_NIGHT
)
BY_CHANGELOG = [case for case in LOCAL if case.name == "format-v2-changelog"]
ON_S3 = next(case for case in CASES if case.name == "transform-with-state-v2")


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths, s3_server: S3Server) -> Iterator[SparkSession]:
    confs = {
        **s3_server.spark_conf(),
        "spark.sql.session.timeZone": "UTC",
        f"{STATE}.maintenanceInterval": "300ms",
        f"{STATE}.minDeltasForSnapshot": "2",
        "spark.sql.streaming.minBatchesToRetain": "3",
    }
    with local_session(spark_paths, confs) as session:
        yield session


@pytest.fixture
def lab(spark: SparkSession, request: pytest.FixtureRequest) -> OperatorLab:
    return lab_of(spark, request.param)


def put_away(live: Path) -> None:
    """Leave nothing to read in the original's place, though maintenance may still write a last file there."""
    live.rename(live.with_name("away"))


@pytest.mark.parametrize("lab", BY_PROVIDER_AND_OPERATOR, ids=lambda case: case.name, indirect=True)
def test_restored_operator_goes_on_as_the_unbroken_one(lab: OperatorLab, tmp_path: Path):
    live, copy = tmp_path / "live", tmp_path / "copy"
    repository = SavepointRepository(LocalStore(tmp_path / "root"), "job")
    manifest, unbroken = take_while_it_runs(lab, str(live), LocalStore(live), repository)
    put_away(live)
    verify_savepoint(manifest, repository, level="full")
    if lab.case.named_sources:  # Spark 4.2 itself cannot restart one in the midst of a batch: None.get
        manifest = as_between_batches(manifest)
    restore_query(manifest, manifest.queries[0], repository, LocalStore(copy))
    assert_goes_on(lab, manifest, str(copy), unbroken)


@pytest.mark.parametrize("lab", BY_CHANGELOG, ids=lambda case: case.name, indirect=True)
def test_batch_that_was_run_again_leaves_two_attempts_and_the_committed_one_counts(
    lab: OperatorLab, tmp_path: Path
):
    live, copy = tmp_path / "live", tmp_path / "copy"
    lab.spark.conf.set(
        f"{STATE}.minDeltasForSnapshot", "100"
    )  # the changelogs lead back to the first version
    failed = lab.start(str(live), {}, fail_in=2)
    with pytest.raises(Exception, match="its commit is not"):
        failed.awaitTermination(90)
    repository = SavepointRepository(LocalStore(tmp_path / "root"), "job")
    manifest, unbroken = take_while_it_runs(lab, str(live), LocalStore(live), repository, first=4)
    put_away(live)
    paths = [entry.path for entry in manifest.queries[0].files]
    assert not [path for path in paths if path.endswith(".zip")]
    attempts = [path for path in paths if path.startswith("state/0/0/3_") and path.endswith(".changelog")]
    assert len(attempts) == 2
    restore_query(manifest, manifest.queries[0], repository, LocalStore(copy))
    assert_goes_on(lab, manifest, str(copy), unbroken)


@pytest.mark.nightly
@pytest.mark.parametrize("lab", [] if paths.SPARK else [ON_S3], ids=lambda case: case.name, indirect=True)
def test_checkpoint_in_a_bucket_goes_on_elsewhere_in_the_bucket(lab: OperatorLab, s3_server: S3Server):
    s3_server.create_bucket("operators")
    settings = S3Settings(
        endpoint=s3_server.endpoint, access_key=s3_server.access_key, secret_key=s3_server.secret_key
    )
    live = open_store("s3a://operators/live", settings)
    repository = SavepointRepository(open_store("s3://operators/root", settings), "job")
    manifest, unbroken = take_while_it_runs(lab, "s3a://operators/live", live, repository, last=5)
    for info in list(live.list()):
        live.delete(info.key)
    verify_savepoint(manifest, repository, level="full")
    copy = open_store("s3://operators/copy", settings)
    restore_query(manifest, manifest.queries[0], repository, copy)
    assert_goes_on(lab, manifest, "s3a://operators/copy", unbroken, last=5)
    newest = max(list_batches(copy, "commits"))
    assert commit_log.parse(copy.read(f"commits/{newest}").decode()).state_unique_ids


@pytest.mark.parametrize("golden", nightly_but(OLDER[-1:].__contains__, OLDER))
def test_savepoint_of_an_older_spark_goes_on_under_this_one(spark: SparkSession, tmp_path: Path, golden: str):
    """The golden query has read five files of ten rows; a sixth adds to its totals."""
    from pyspark.sql import functions as F

    case = next(case for case in CASES if case.name == Path(golden).name)
    repository = SavepointRepository(LocalStore(tmp_path / "root"), "job")
    source = QuerySource(name="q", checkpoint=LocalStore(GOLDEN / golden), kafka={})
    label = SavepointLabel(
        savepoint_id="sp-1", taken_at_ms=1, spark_version=Path(golden).parts[0], taken_from_generation=1
    )
    manifest = take_savepoint(repository, [source], label)
    restore_query(manifest, manifest.queries[0], repository, LocalStore(tmp_path / "copy"))
    folder = tmp_path / "input"
    folder.mkdir()
    for batch in range(6):
        rows = (f'{{"k":{row % 5},"v":{batch * 10 + row}}}' for row in range(10))
        (folder / f"part-{batch}.json").write_text("\n".join(rows))
    # The file source names its files by absolute path, and forgets those of a week before the newest one.
    now_ms = int(time.time() * 1000)
    for log in (tmp_path / "copy/sources/0").iterdir():
        text = re.sub("file:///tmp/golden-[^/]+/input", folder.as_uri(), log.read_text())
        log.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{now_ms}', text))
    session = spark.newSession()
    for name, value in case.confs.items():
        session.conf.set(name, value)
    stream = session.readStream.schema("k int, v int, t long").json(str(folder))
    built = case.build(lambda _: stream.select("k", "v", F.timestamp_seconds("t").alias("ts")))
    seen: dict[int, int] = {}
    writer = built.writeStream.outputMode("update").foreachBatch(
        lambda frame, _: seen.update({row.k: row.s for row in frame.collect()})
    )
    query = writer.option("checkpointLocation", str(tmp_path / "copy")).trigger(availableNow=True).start()
    assert query.awaitTermination(90)
    assert seen == {k: sum(batch * 10 + row for batch in range(6) for row in (k, k + 5)) for k in range(5)}
