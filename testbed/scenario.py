"""One orders job on a pair of brokers, with its producer, ledger and judge: what demo and stories share."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.hooks.aws import s3_environment
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.deployments.base import Gone
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.cutover import PHASES, Cutover
from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch
from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget, from_launch, submission_of
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.records import KafkaOverride
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_store
from testbed import paths
from testbed.drivers import SPARK_PYTHON, s3_env, s3_settings, spark_conf, spark_env
from testbed.judge import Judgement, StateReader, judge
from testbed.keys import SIGNER, SIGNING_KEY
from testbed.late_producer import LateProducer
from testbed.ledger import read_ledger
from testbed.process import Service
from testbed.producer import OrderBook, ProducerSettings, read_events
from testbed.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from airflow_flinkstyle.jobs.start.origins import Origin
    from airflow_flinkstyle.protocol.records import Claim
    from airflow_flinkstyle.storage.s3_settings import S3Settings
    from airflow_flinkstyle.types import Generation
    from testbed.s3 import S3Server
    from testbed.topics import Reached

QUERY = "orders"
PARTITIONS = 4
CUSTOMERS = 200
BUCKET = "savepoints"
"""Made by whoever starts the S3 server."""
ORDERS_JOB = paths.ROOT / "examples" / "orders_job.py"
TRIGGER = "2 seconds"
"""Between batches. The smallest one costs a driver 0.4 s of CPU, of two cores on which four stories run."""


def committed_offsets(checkpoint: Path) -> tuple[int, dict[str, dict[int, int]]] | None:
    """Return the newest committed batch and its positions, read without the package's own parser."""
    batches = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*") if path.name.isdigit()]
    if not batches:
        return None
    lines = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
    topics = json.loads(lines[2])
    return max(batches), {
        topic: {int(number): offset for number, offset in numbers.items()}
        for topic, numbers in topics.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaunched:
    """How a driver process ended."""

    exit_code: int
    log: str


class OrdersScenario:
    """A topic, a job that counts its orders, a producer, and everything needed to move and judge them."""

    def __init__(
        self,
        *,
        folder: Path,
        old: Reached,
        new: Reached,
        topic: str,
        job: str = "orders",
        s3: S3Server | None = None,
        way: str | None = None,
        identity: S3Settings | None = None,
        master: str = "local[2]",
        lease_s: float = 10.0,
        supervised: bool = False,
    ) -> None:
        """Prepare; drivers and callers reach ``s3`` by the URL ``way`` if it is given, the producer never.

        With an ``identity`` they reach it as that says, and S3 has the job's checkpoints too. ``supervised``
        drivers have a supervisor beside them.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.old, self.new, self.topic = folder, old, new, topic
        self.ledger = folder / "ledger"
        self._late_ledger = folder / "late-ledger"
        self.s3 = s3
        self.store_uri = f"s3://{BUCKET}" if s3 else (folder / "store").as_uri()
        self.secret_env = s3_environment(identity) if identity else s3_env(s3, way=way) if s3 else {}
        self.target = SubmitTarget(
            master=master,
            python=str(SPARK_PYTHON),
            conf=spark_conf(),
            secret_env=self.secret_env,
            log_dir=str(folder / "drivers"),
        )
        self.spec = JobSpec(
            name=job,
            script=str(ORDERS_JOB),
            args=(
                *("--bootstrap", old.bootstrap, "--topic", topic),
                *("--output", str(folder / "output"), "--trigger", TRIGGER),
            ),
            checkpoint_root=f"s3a://{BUCKET}/checkpoints" if identity else str(folder / "checkpoints"),
            lease_s=lease_s,
        )
        self.producer: Service | None = None
        settings = identity or (s3_settings(s3, way=way) if s3 else None)
        store = open_store(self.store_uri, settings)
        self.board = JobBoard(store, job)
        self.switch = StoreProducerSwitch(store, self.switch_key)
        self.client = JobClient(
            view=JobView(
                board=self.board,
                repository=SavepointRepository(store, job),
                deployment=DetachedDeployment(supervisor_env={} if supervised else None),
                signer=SIGNER,
                secret_env=self.secret_env,
                base_env=spark_env(),
                open_checkpoint=partial(open_store, s3=settings),
            )
        )

    def __enter__(self) -> Self:
        """Return the scenario."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the producer and every driver that was started for the job."""
        self.end_producer()
        self.end_drivers()

    # --- the topic and its producer -----------------------------------------------------------

    @property
    def switch_key(self) -> str:
        """Where the producer looks for its position: the ``store`` switch of the hook."""
        return f"{self.spec.name}/producers.json"

    def create_topic(self, deleted: Mapping[int, int] | None = None) -> None:
        """Create the topic on ``old``; its first records, as many as told, are gone by retention."""
        self.old.create_topic(self.topic, partitions=PARTITIONS)
        if not deleted:
            return
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.old.bootstrap})
        history = OrderBook(customers=CUSTOMERS, partitions=PARTITIONS)
        for partition, records in deleted.items():
            for _ in range(records):
                order = history.next(only=partition)
                producer.produce(self.topic, key=order.customer, value=order.to_json(), partition=partition)
        producer.flush(30)
        self.old.delete_records(self.topic, deleted)

    def start_producer(
        self,
        *,
        rate_per_s: float = 300.0,
        opening: Mapping[int, int] | None = None,
        most_on_old: int | None = None,
    ) -> None:
        """Start writing orders to ``old``; returns when the first are acknowledged."""
        settings = ProducerSettings(
            servers={"old": self.old.bootstrap, "new": self.new.bootstrap},
            topic=self.topic,
            partitions=PARTITIONS,
            customers=CUSTOMERS,
            rate_per_s=rate_per_s,
            ledger=str(self.ledger),
            store_uri=self.store_uri,
            switch_key=self.switch_key,
            opening={str(partition): orders for partition, orders in (opening or {}).items()},
            most_on_old=most_on_old,
        )
        self.producer = Service(
            "order producer",
            [sys.executable, "-m", "testbed.producer", settings.to_json()],
            log_file=self.folder / "producer.log",
            ready=lambda: self.acknowledged() > sum((opening or {}).values()),
            env={**os.environ, **(s3_env(self.s3) if self.s3 else {})},
            cwd=paths.ROOT,
        )
        self.producer.start()

    def write_foreign_records(self, stop: threading.Event) -> None:
        """Write records to the mirrored topic on ``new`` that were never on ``old``, until told to stop."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.new.bootstrap, "linger.ms": "0"})
        while not stop.wait(0.05):
            producer.produce(self.topic, key="c001", value=b"{}", partition=1)
            producer.poll(0)
        producer.flush(30)

    def write_unheeding(self, stop: threading.Event) -> None:
        """Write to ``old``, whatever the switch says, until told to stop."""
        producer = self.late_producer()
        while not stop.wait(0.05):
            producer.write(1)

    def late_producer(self) -> LateProducer:
        """Return a producer for ``old`` that no switch reaches; the judge knows its orders."""
        return LateProducer(self.old.bootstrap, self.topic, self._late_ledger)

    def end_producer(self) -> None:
        """Let the producer flush and end; the ledger is complete then."""
        if self.producer is not None:
            self.producer.stop(grace_s=30)

    def acknowledged(self) -> int:
        """Return how many lines the ledger has."""
        if not self.ledger.exists():
            return 0
        with self.ledger.open("rb") as lines:  # counted, not parsed: this is polled
            return sum(1 for _ in lines)

    def producer_is_at(self) -> str | None:
        """Return the cluster the producer was last released to, or None while it is held."""
        events = list(read_events(self.ledger))
        return events[-1]["cluster"] if events else None

    # --- Airflow ------------------------------------------------------------------------------

    def connections(self) -> dict[str, str]:
        """Return the Airflow connections with which the DAGs find all of this."""
        flinkstyle = {
            "savepoint_root": self.store_uri,
            "checkpoint_root": self.spec.checkpoint_root,
            "aws_conn_id": "aws_default" if self.s3 else None,
            "lease_s": self.spec.lease_s,
            "log_dir": self.target.log_dir,
            "producer_switch": "store",
            "kafka_connections": "kafka_old,kafka_new",
        }
        spark = {"python": self.target.python, "conf": dict(self.target.conf)}
        found = {
            "flinkstyle_default": {
                "conn_type": "flinkstyle",
                "password": SIGNING_KEY,
                "extra": flinkstyle,
            },
            "spark_default": {"conn_type": "spark", "host": self.target.master, "extra": spark},
            "kafka_old": _kafka_connection(self.old),
            "kafka_new": _kafka_connection(self.new),
        }
        if self.s3:
            extra = {"endpoint_url": self.s3.endpoint, "region_name": self.s3.region}
            keys = {"login": self.s3.access_key, "password": self.s3.secret_key}
            found["aws_default"] = {"conn_type": "aws", **keys, "extra": extra}
        return {name: json.dumps(connection) for name, connection in found.items()}

    def start_form(self) -> dict[str, Any]:
        """Return what the form of DAG ``start_job`` needs."""
        return {"job": self.spec.name, "script": self.spec.script, "args": list(self.spec.args)}

    def migration_form(self) -> dict[str, Any]:
        """Return what the form of DAG ``migrate_kafka_cluster`` needs."""
        return {"job": self.spec.name, "target_kafka_conn_id": "kafka_new"}

    # --- the job ------------------------------------------------------------------------------

    @property
    def on_new(self) -> tuple[KafkaOverride, ...]:
        """The override that points the unmodified script to ``new``."""
        options = {"kafka.bootstrap.servers": self.new.bootstrap}
        return (KafkaOverride(role="source", servers=self.old.bootstrap, options=options),)

    def start(
        self, *, key: str = "start", spec: JobSpec | None = None, origin: Origin | None = None
    ) -> Generation:
        """Start the job and wait for its first commit."""
        handle = self.client.starts.start(spec or self.spec, self.target, claim_key=key, origin=origin)
        self.client.drivers.wait_running(handle.generation, timeout_s=PATIENCE_S)
        self.wait_commits(1)
        return handle.generation

    def relaunch(self, generation: Generation) -> Relaunched:
        """Start one more driver process of a generation by hand, as a cluster manager would, to its end."""
        claim = self.claim(generation)
        spec, target = from_launch(claim.launch, secret_env=self.secret_env)
        submission = submission_of(
            spec,
            target,
            root=self.store_uri,
            root_id=self.board.root.root_id,
            generation=generation,
            claim_id=claim.claim_id,
            base_env=spark_env(),
        )
        done = subprocess.run(  # noqa: S603  (the package's own command line)
            submission.argv,
            env=dict(submission.env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=120,
        )
        return Relaunched(exit_code=done.returncode, log=done.stdout)

    def running(self) -> Running:
        """Return the run that runs; anything else is an error."""
        status = self.client.view.status()
        if not isinstance(status, Running):
            raise RuntimeError(f"The job was expected to run, found {status}")  # noqa: TRY004
        return status

    def claim(self, generation: Generation | None = None) -> Claim:
        """Return the claim of the current generation, or of another."""
        if generation is None:
            current = self.board.current()
            if current is None:
                raise RuntimeError("no generation has run yet")
            generation = current.value.generation
        claim = self.board.claim(generation)
        if claim is None:
            raise RuntimeError(f"generation {generation} was never claimed")
        return claim

    def checkpoint(self, generation: Generation | None = None, *, query: str = QUERY) -> Path:
        """Return a query's checkpoint of the current generation, or of another."""
        location = self.claim(generation).checkpoint_location
        if self.s3 is not None and location.startswith("s3a://"):
            return self.s3.data / location.removeprefix("s3a://") / query  # the server has it as files
        return Path(location) / query

    def last_batch(self) -> int:
        """Return the newest committed batch of the current generation; -1 before the first."""
        found = committed_offsets(self.checkpoint())
        return found[0] if found else -1

    def wait_commits(self, more: int) -> None:
        """Wait until the job has committed so many batches more than it has now."""
        before = self.last_batch()
        wait_until(
            f"{more} more batches after {before}",
            lambda: self.last_batch() >= before + more,
        )

    def end_drivers(self) -> None:
        """Kill every driver that is still alive."""
        for generation in self.board.generations():
            self.client.drivers.end_driver(generation)

    def kill_driver(self) -> None:
        """``kill -9`` the driver that runs."""
        ended = self.client.drivers.end_driver(self.running().run.generation)
        if not isinstance(ended, Gone):
            raise AssertionError(f"the driver was not killed: {ended}")  # noqa: TRY004 - a test bed that does not do what it says

    def native_ids(self, generation: Generation) -> list[Mapping[str, str]]:
        """Return every driver process known of a generation, the submitted one first."""
        submit = self.board.submit(generation)
        numbers = self.board.incarnations(generation)
        records = [self.board.incarnation(generation, number) for number in numbers]
        begun = [self.client.view.deployment.native_id(record) for record in records if record is not None]
        return [*([submit.value.native_id] if submit and submit.value.native_id else []), *begun]

    # --- migration ----------------------------------------------------------------------------

    def kafka_side(self) -> LiveKafka:
        """Return both clusters with the mirror between them."""
        patience_s = CutoverSettings().broker_timeout_s
        old, new = (
            KafkaCluster(name=name, config={"bootstrap.servers": side.bootstrap}, patience_s=patience_s)
            for name, side in (("old", self.old), ("new", self.new))
        )
        return LiveKafka(old=old, new=new, mirror=MirrorSettings(source_alias="old", target_alias="new"))

    def cutover(self, *, migration_id: str = "m1", hot: str | None = None, **changes: Any) -> Cutover:
        """Return the window of a migration to ``new``; ``changes`` replace its parts."""
        parts: dict[str, Any] = {
            "client": self.client,
            "journal": CutoverJournal(self.board.store, self.spec.name, migration_id, PHASES, signer=SIGNER),
            "switch": self.switch,
            "kafka": self.kafka_side(),
            "spec": replace(self.spec, overrides=self.on_new),
            "target": self.target,
            "hot_savepoint_id": hot,
            "settings": CutoverSettings(),
        }
        return Cutover(**{**parts, **changes})

    def hot_savepoint(self, *, key: str = "hot") -> str:
        """Take a savepoint while the job runs and return its id."""
        pending = self.client.requests.request_savepoint(key)
        _, end = self.client.requests.wait(pending, timeout_s=PATIENCE_S)
        if end.outcome != "done" or end.savepoint_id is None:
            raise RuntimeError(f"the savepoint ended as {end}")
        return end.savepoint_id

    # --- judgement ----------------------------------------------------------------------------

    def wait_all_read(
        self, broker: Reached, *, query: str = QUERY, watch: Callable[[], object] = lambda: None
    ) -> None:
        """Wait until a query of the job has committed everything that stands in the topic.

        Args:
            broker: Where the job reads.
            query: Which query.
            watch: Called all the while: what starts a driver again that a fault has ended.
        """
        ends = {number: end for number, (_, end) in broker.log_range(self.topic).items()}

        def read() -> bool:
            watch()
            with contextlib.suppress(FileNotFoundError):  # a log file that was just purged
                found = committed_offsets(self.checkpoint(query=query))
                return found is not None and found[1].get(self.topic) == ends
            return False

        wait_until(f"everything up to {ends} read from {broker.name}", read)

    def judge(
        self, reader: StateReader, broker: Reached, *, watch: Callable[[], object] = lambda: None
    ) -> Judgement:
        """End the producer, let the job read everything, and judge its state; ``watch`` as above."""
        self.end_producer()
        self.wait_all_read(broker, watch=watch)
        ledgers = [path for path in (self.ledger, self._late_ledger) if path.exists()]
        return judge(chain.from_iterable(map(read_ledger, ledgers)), reader.read(self.checkpoint()))


def _kafka_connection(broker: Reached) -> dict[str, Any]:
    return {"conn_type": "kafka", "extra": {"bootstrap.servers": broker.bootstrap}}
