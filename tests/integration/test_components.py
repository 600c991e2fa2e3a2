"""Real components start, answer, stop, and leave no process; stories try those that are not here."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed import paths
from testbed.jvm import spark_options
from testbed.kafka import Broker
from testbed.ports import free_port, is_listening
from testbed.process import Service, ServiceError
from testbed.s3 import S3Server
from testbed.spark import SparkCluster, spark_paths
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.integration

MARK = "FLINKSTYLE_TEST_MARK"


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], set[int]]]:
    """Mark every process the test starts; afterwards none of them may live."""
    mark = f"{MARK}={uuid.uuid4().hex}".encode()
    monkeypatch.setenv(*mark.decode().split("="))

    def alive() -> set[int]:
        found = set()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
        return found

    yield alive
    left = alive()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def produce(broker: Broker, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, f"record {number}", partition=0)
    assert producer.flush(30) == 0


@pytest.mark.matrix
@pytest.mark.usefixtures("marked")
def test_broker_stopped_or_killed_keeps_its_data_and_cluster_id(tmp_path: Path):
    with Broker("old", tmp_path) as broker:
        cluster_id = broker.cluster_id
        broker.create_topic("t", partitions=2)
        produce(broker, "t", 50)
        broker.delete_records("t", {0: 20})
        broker.stop()  # a broker killed within seconds would have forgotten the deletion
        assert not is_listening(broker.port)
        broker.start()
        broker.kill()
        broker.start()
        assert broker.cluster_id == cluster_id
        assert broker.log_range("t") == {0: (20, 50), 1: (0, 0)}


@pytest.mark.matrix
@pytest.mark.usefixtures("marked")
def test_s3_server_refuses_second_create_and_keeps_buckets_over_restart(tmp_path: Path):
    from botocore.exceptions import ClientError

    with S3Server(tmp_path) as server:
        server.create_bucket("savepoints")
        server.client().put_object(Bucket="savepoints", Key="k", Body=b"first", IfNoneMatch="*")
        with pytest.raises(ClientError, match="PreconditionFailed"):
            server.client().put_object(Bucket="savepoints", Key="k", Body=b"second", IfNoneMatch="*")
        server.kill()
        server.start()
        assert server.client().get_object(Bucket="savepoints", Key="k")["Body"].read() == b"first"


@pytest.mark.matrix
@pytest.mark.usefixtures("marked")
def test_spark_cluster_of_two_workers_reads_kafka_and_keeps_its_checkpoint_on_s3(tmp_path: Path):
    job = tmp_path / "job.py"
    job.write_text(
        textwrap.dedent("""
        import sys
        from pyspark.sql import SparkSession

        bootstrap, checkpoint = sys.argv[1:]
        spark = SparkSession.builder.getOrCreate()
        orders = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        orders = orders.option("subscribe", "t").option("startingOffsets", "earliest").load()
        counted = orders.groupBy("partition").count()
        sink = counted.writeStream.outputMode("complete").format("memory").queryName("counted")
        sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
        print("COUNTED", spark.sql("select sum(count) from counted").first()[0])
        """)
    )
    spark = spark_paths(java_options=spark_options())
    with Broker("b", tmp_path / "b") as broker, S3Server(tmp_path / "s3") as s3:
        broker.create_topic("t", partitions=2)
        produce(broker, "t", 70)
        s3.create_bucket("checkpoints")
        with SparkCluster(tmp_path / "spark") as cluster:
            rocksdb = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            conf = {
                **spark.conf,
                **s3.spark_conf(),
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.streaming.stateStore.providerClass": rocksdb,
                "spark.executor.memory": "512m",
            }
            options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
            submit = [spark.spark_submit, "--master", cluster.master, "--driver-memory", "512m"]
            done = subprocess.run(
                [*submit, *options, job, broker.bootstrap, "s3a://checkpoints/job"],
                env={**os.environ, **spark.env},
                capture_output=True,
                text=True,
                timeout=240,
            )
            assert "COUNTED 70" in done.stdout, done.stderr[-3000:]
            assert len(cluster.state()["completedapps"]) == 1
        keys = [entry["Key"] for entry in s3.client().list_objects_v2(Bucket="checkpoints")["Contents"]]
        assert "job/commits/0" in keys
        assert any(key.startswith("job/state/0/0/") for key in keys)


@pytest.mark.usefixtures("marked")
def test_component_that_ends_at_once_is_reported_with_the_end_of_its_log(tmp_path: Path):
    command = [sys.executable, "-c", "print('port is taken'); raise SystemExit(3)"]
    service = Service("Thing", command, log_file=tmp_path / "log", ready=lambda: False)
    with pytest.raises(ServiceError, match=r"(?s)Thing was expected to become ready.*port is taken"):
        service.start()


@pytest.mark.usefixtures("marked")
def test_component_that_never_answers_is_reported_and_ended(tmp_path: Path):
    service = Service(
        "Thing", ["sleep", "600"], log_file=tmp_path / "log", ready=lambda: False, ready_timeout_s=1
    )
    with pytest.raises(ServiceError, match="expected to be ready within 1 s"):
        service.start()
    assert not service.is_running


def test_frozen_component_that_ignores_sigterm_is_killed(tmp_path: Path, marked: Callable[[], set[int]]):
    command = ["bash", "-c", "trap '' TERM; while true; do sleep 1; done"]
    service = Service("Thing", command, log_file=tmp_path / "log", ready=lambda: True)
    service.start()
    service.freeze()
    service.stop(grace_s=1)
    assert marked() == set()


@pytest.mark.usefixtures("marked")
def test_everything_dies_with_an_owner_that_was_killed(tmp_path: Path, marked: Callable[[], set[int]]):
    port = free_port()
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "log"), str(port)],
        cwd=paths.ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "started\n"
    assert len(marked()) >= 4  # owner, guard, shell, and the process with a session of its own
    owner.kill()
    owner.wait()
    owner.stdout.close()
    wait_until("what the owner started has ended", lambda: not marked())


OWNER = """
import sys, time
from pathlib import Path
from testbed.process import Service
command = ["bash", "-c", "setsid sleep 600 & sleep 600"]
service = Service("Thing", command, log_file=Path(sys.argv[1]), ready=lambda: True)
service.start()
time.sleep(0.5)
print("started", flush=True)
time.sleep(600)
"""


@pytest.mark.usefixtures("marked")
def test_guarded_command_returns_its_exit_code_and_leaves_nothing_detached():
    guard = [sys.executable, paths.ROOT / "testbed" / "guard.py", "--"]
    done = subprocess.run([*guard, "bash", "-c", "setsid sleep 600 & exit 7"], timeout=30)
    assert done.returncode == 7


@pytest.mark.usefixtures("marked")
def test_guarded_command_is_interrupted_with_its_guard(marked: Callable[[], set[int]]):
    with subprocess.Popen(
        [sys.executable, paths.ROOT / "testbed" / "guard.py", "--", sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # As if started from a terminal: a shell's background jobs are deaf to SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as guard:
        try:
            assert guard.stdout is not None
            assert guard.stdout.readline() == "up\n"
            guard.send_signal(signal.SIGINT)
            assert guard.wait(60) == 128 + signal.SIGINT
        finally:
            guard.kill()  # of one that has ended nothing happens
    assert marked() == set()


# With Python's own handler of SIGINT, one that came just before sleep() began would be seen at its end only.
INTERRUPTED = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
print("up", flush=True)
time.sleep(600)
"""
