"""Everything that stays in a store, in Kafka or with a user: how it is read, and what that means."""

from __future__ import annotations

import gzip
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.jobs.definition import read_job
from airflow_flinkstyle.jobs.deployments.kubernetes.deployment import Kubernetes
from airflow_flinkstyle.jobs.migration.approved import Approved
from airflow_flinkstyle.jobs.packing import DriverAgent
from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget, from_launch, launch_of
from airflow_flinkstyle.kafka.fence.acls import AclRule
from airflow_flinkstyle.kafka.fence.fences import FenceRecord
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.start.text import read_table
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.records import KafkaOverride
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.exchange.export import export_archive
from airflow_flinkstyle.savepoint.exchange.importing import import_archive
from airflow_flinkstyle.savepoint.repository import folder_cache
from airflow_flinkstyle.savepoint.repository.manifest_objects import parse_manifest, reason_of, tombstone_of
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import summarize
from airflow_flinkstyle.sinks.settings import SinkSettings
from testbed.memory_store import MemoryStore
from tests.formats.examples import an_example, every_record
from tests.unit.jobs.migration.migrations import FULL
from tests.unit.savepoint.manifests import a_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

CHECKPOINT: Final = Path(__file__).parents[1] / "golden" / "4.3.0" / "stateless"
OFFSETS: Final = Offsets.of({"orders": {0: 17, 10: 4}})  # type: ignore[dict-item]
ORDERS: Final = """\
job: orders
script: /jobs/orders.py
args: [--topic, orders, 7]
conf: {spark.executor.memory: 2g, spark.sql.adaptive.enabled: true}
env: {MODE: fast}
spark_conn_id: spark_big
fresh: 36h
"""
SUMMARIES: Final = {"sp-1": ("version-1", asdict(summarize(a_manifest()))), "sp-0": ("version-2", None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One stored format."""

    meaning: Any
    """What the newest golden file is read as."""
    read: Callable[[bytes], Any]
    """As the package reads it today."""
    write: Callable[[], bytes]
    """As the package, or a user, writes it today."""
    is_exact: bool = True
    """Whether equal values are equal bytes, wherever they are written."""


def _text(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _records() -> dict[str, Document]:
    examples = {f"{kind.__name__.lstrip('_')}.json": an_example(kind) for kind in every_record()}
    return {
        name: Document(meaning=one, read=type(one).from_bytes, write=one.to_bytes)
        for name, one in examples.items()
    }


def _repository(data: bytes = b"") -> SavepointRepository:
    repository = SavepointRepository(MemoryStore(), "orders")
    if data:
        repository.store.write("orders/cache/savepoints.json", data)
    return repository


def _by_file(data: bytes, name: str, read: Callable[[Path], Any]) -> Any:  # noqa: ANN401 - what it reads
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        return read(path)


def _exported() -> bytes:
    checkpoint, repository = MemoryStore("checkpoint"), _repository()
    for path in sorted(CHECKPOINT.rglob("*")):
        if path.is_file():
            checkpoint.write(str(path.relative_to(CHECKPOINT)), path.read_bytes())
    label = SavepointLabel(
        savepoint_id="sp-1", taken_at_ms=1, spark_version=CHECKPOINT.parent.name, taken_from_generation=None
    )
    take_savepoint(repository, [QuerySource(name="totals", checkpoint=checkpoint, kafka={})], label)
    with tempfile.TemporaryDirectory() as folder:
        export_archive(repository, "sp-1", Path(folder, "sp-1.tar"))
        return Path(folder, "sp-1.tar").read_bytes()


def _imported(data: bytes) -> dict[str, int]:
    manifest = _by_file(data, "sp-1.tar", lambda path: import_archive(path, _repository()))
    return {entry.path: entry.size_bytes for query in manifest.queries for entry in query.files}


def _launch() -> tuple[JobSpec, SubmitTarget]:
    spec = JobSpec(
        name="orders", script="/jobs/orders.py", args=("--fast",), conf={"a": "b"}, env={"MODE": "fast"},
        overrides=(an_example(KafkaOverride),), checkpoint_root="s3a://bucket/checkpoints", lease_s=7.5,
    )  # fmt: skip
    target = SubmitTarget(
        master="k8s://host", python="/opt/python", spark_home="/opt/spark", conf={"c": "d"}, jars=("a.jar",),
        packages=("g:a:1",), working_dir="/jobs", log_dir="/logs",
        deployment=Kubernetes(agent=DriverAgent(way="py-files", path="s3a://bucket/agent.zip")),
        standby_cores=2.0, standby_memory="4g",
    )  # fmt: skip
    return spec, target


def _sink_names() -> dict[str, object]:
    sink = SinkSettings(
        cluster=KafkaCluster(name="out", config={"bootstrap.servers": "out:9092"}), topic="totals",
        lineage="totals.2", shards=2, control_topic="flinkstyle-totals.2.internal", run="r",
    )  # fmt: skip
    return {"markers": [sink.transactional_id(shard) for shard in range(2)], "completion": sink.completion_id}


def documents() -> dict[str, Document]:
    """Return every stored format, by the name of its golden file."""
    manifest, plan = a_manifest(), an_example(OffsetRewritePlan)
    told: dict[str, Any] = {"job": "orders", "added": 1}
    approved = Approved(migration=FULL, told=told, source_cluster_id="c-1", target_cluster_id="c-2")
    rule = AclRule(name="orders", principal="User:*", operation="WRITE", permission="deny")
    fence = FenceRecord(kind="acl", cluster_id="c-1", topics=("orders",), rules=(rule,), stood=(rule,))
    text, tar = manifest_json.to_json(manifest).encode(), _exported()
    header = "topic,partition,offset\n"
    csv = header + "".join(f"{topic},{partition},{at}\n" for (topic, partition), at in OFFSETS.items())
    return _records() | {
        "manifest.json": Document(
            meaning=manifest, read=lambda data: manifest_json.from_json(data.decode()), write=lambda: text
        ),
        "manifest.json.gz": Document(
            meaning=manifest,
            read=lambda data: parse_manifest(_repository(), "sp-1", data),
            write=lambda: gzip.compress(text, mtime=0),
            is_exact=False,
        ),
        "tombstone.json": Document(
            meaning="given up",
            read=lambda data: reason_of(data, "key"),
            write=lambda: tombstone_of("given up"),
        ),
        "cache-savepoints.json": Document(
            meaning=SUMMARIES,
            read=lambda data: folder_cache._read_cache(_repository(data), "savepoints"),
            write=lambda: folder_cache._rendered(SUMMARIES),
        ),
        "export.tar": Document(meaning=_imported(tar), read=_imported, write=lambda: tar),
        "plan.json": Document(
            meaning=plan,
            read=lambda data: OffsetRewritePlan.from_json(data.decode()),
            write=lambda: plan.to_json().encode(),
        ),
        "approved.json": Document(
            meaning=approved,
            read=lambda data: Approved.from_fields(json.loads(data)),
            write=lambda: _text(approved.as_fields()),
        ),
        "fence.json": Document(
            meaning=fence,
            read=lambda data: FenceRecord.from_dict(json.loads(data)),
            write=lambda: _text(fence.as_dict()),
        ),
        "launch.json": Document(
            meaning=_launch(),
            read=lambda data: from_launch(json.loads(data), secret_env={}),
            write=lambda: _text(launch_of(*_launch())),
        ),
        "sink-keys.json": Document(
            meaning=_sink_names(), read=json.loads, write=lambda: _text(_sink_names())
        ),
        "offsets.json": Document(
            meaning=OFFSETS,
            read=lambda data: _by_file(data, "offsets.json", read_table),
            write=lambda: _text({"orders": {"0": 17, "10": 4}}),
        ),
        "offsets.csv": Document(
            meaning=OFFSETS,
            read=lambda data: _by_file(data, "offsets.csv", read_table),
            write=lambda: csv.encode(),
        ),
        "job.yaml": Document(
            meaning=_by_file(ORDERS.encode(), "job.yaml", lambda path: read_job(path, "orders")),
            read=lambda data: _by_file(data, "job.yaml", lambda path: read_job(path, "orders")),
            write=ORDERS.encode,
        ),
    }  # fmt: skip
