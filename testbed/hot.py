"""Hot savepoints of a job with every state store, judged copy by copy: story, soak and benchmark share it."""

from __future__ import annotations

import functools
import json
import random
import shutil
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.storage.local import LocalStore
from testbed import paths
from testbed.answers import Answering
from testbed.drivers import SPARK_PYTHON, spark_conf, spark_env
from testbed.hot_job import KINDS, STATE
from testbed.judge import Total, judge, totals_of
from testbed.ledger import read_ledger
from testbed.scenario import OrdersScenario
from testbed.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from testbed.kafka import Broker
    from testbed.ledger import Entry, Order

JOB = paths.ROOT / "testbed" / "hot_job.py"
LONGEST_PAUSE_S = 1.2
"""Between two savepoints: a few batches, so that every moment of a batch and of maintenance is met."""
HASTY = {
    f"{STATE}.maintenanceInterval": "1s",
    f"{STATE}.minDeltasForSnapshot": "3",
    "spark.sql.streaming.minBatchesToRetain": "3",
}
"""Files are replaced and deleted all the time, so that a copy that looks twice sees two states."""

Result = Literal["right", "wrong", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one copied query."""

    query: str
    result: Result
    """``refused``: Spark did not start from it. ``wrong``: it did, and its state is not what was sent."""
    detail: str = ""


@dataclass(slots=True)
class Tally:
    """Verdicts of many copies."""

    counts: Counter[tuple[str, Result]] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    def add(self, copy: str, verdicts: Iterable[Verdict]) -> None:
        """Count the queries of one copy."""
        for verdict in verdicts:
            self.counts[verdict.query, verdict.result] += 1
            if verdict.result != "right":
                self.bad.append(f"{copy}, {verdict.query}: {verdict.result}: {verdict.detail}")

    def merge(self, other: Tally) -> None:
        """Add another tally to this one."""
        self.counts += other.counts
        self.bad += other.bad

    def total(self, result: Result) -> int:
        """Return how many queries of all copies came out so."""
        return sum(count for (_, found), count in self.counts.items() if found == result)

    def __str__(self) -> str:
        """Return the three numbers."""
        right, wrong, refused = self.total("right"), self.total("wrong"), self.total("refused")
        return f"{right} queries right, {wrong} wrong, {refused} refused"


class HotJob:
    """The job under load on a topic of its own."""

    def __init__(self, folder: Path, broker: Broker, topic: str) -> None:
        self.orders = OrdersScenario(folder=folder, old=broker, new=broker, topic=topic, job="hot")
        args = ("--bootstrap", broker.bootstrap, "--topic", topic)
        self.orders.spec = replace(self.orders.spec, script=str(JOB), args=args)
        conf = {**self.orders.target.conf, **HASTY, "spark.driver.memory": "1g"}
        self.orders.target = replace(self.orders.target, conf=conf)

    def start(self, *, rate_per_s: float) -> None:
        """Start the producer and the job; returns once every query has committed a batch."""
        self.orders.create_topic(deleted={0: 100, 1: 40})
        self.orders.start_producer(rate_per_s=rate_per_s)
        handle = self.orders.client.starts.start(self.orders.spec, self.orders.target, claim_key="start")
        self.orders.client.drivers.wait_running(handle.generation, timeout_s=PATIENCE_S)
        wait_until("a batch of every query", lambda: min(self.committed().values()) >= 0)

    def end(self, starter: Answering) -> Judge:
        """Stop the job and the producer; returns who judges copies by every order that was sent."""
        starter.start()
        self.orders.client.requests.stop("stop", savepoint=False, timeout_s=PATIENCE_S)
        self.orders.end_producer()
        ledger = list(read_ledger(self.orders.ledger))
        return Judge(starter, ledger, bootstrap=self.orders.old.bootstrap, topic=self.orders.topic)

    @property
    def live(self) -> Path:
        """The folder with the checkpoints of the running queries."""
        return self.orders.checkpoint().parent

    def committed(self) -> dict[str, int]:
        """Return the newest committed batch per query, by names of files: they may be gone at once."""
        return {
            name: max((int(path.name) for path in (self.live / name / "commits").glob("[0-9]*")), default=-1)
            for name in KINDS
        }

    def take(self, key: str) -> Manifest:
        """Take a savepoint while the job runs."""
        return self.orders.client.view.repository.read(self.orders.hot_savepoint(key=key))

    def take_at_random_moments(self, moments: random.Random, count: int) -> list[Manifest]:
        """Take savepoints, each at batches of its own."""
        manifests = []
        for number in range(count):
            time.sleep(moments.uniform(0, LONGEST_PAUSE_S))
            manifests.append(self.take(f"hot-{number}"))
            wait_until(
                "batches after the savepoint's",
                functools.partial(self.has_run_past, manifests[-1]),
            )
        return manifests

    def has_run_past(self, manifest: Manifest) -> bool:
        """Tell whether every query has committed a batch after the savepoint's."""
        committed = self.committed()
        return all(committed[query.name] > query.batch_id for query in manifest.queries)

    def restore(self, manifest: Manifest, target: Path) -> dict[str, Path]:
        """Restore every query below ``target`` and return where each is."""
        repository = self.orders.client.view.repository
        copies = {query.name: target / query.name for query in manifest.queries}
        for query in manifest.queries:
            restore_query(manifest, query, repository, LocalStore(copies[query.name]))
        return copies


class Truth:
    """What every customer had ordered before any given position."""

    def __init__(self, ledger: Iterable[Entry]) -> None:
        self._orders: dict[str, list[tuple[int, Order]]] = defaultdict(list)
        for entry in ledger:
            if entry.offset is None:
                raise RuntimeError("an order's acknowledgement is unknown: nothing can be judged by offsets")
            self._orders[entry.order.customer].append((entry.offset, entry.order))
        for orders in self._orders.values():
            orders.sort(key=itemgetter(0))

    def at(self, positions: Mapping[int, int]) -> dict[str, Total]:
        """Return the totals of the orders that stand before these positions."""
        totals = {}
        for customer, orders in self._orders.items():
            end = positions[orders[0][1].partition]  # a customer's orders are all in one partition
            before = [order for _, order in orders[: bisect_left(orders, end, key=itemgetter(0))]]
            if before:
                totals[customer] = Total(
                    orders=len(before),
                    amount=sum(order.amount for order in before),
                    numbers=frozenset(order.number for order in before),
                )
        return totals


class Judge:
    """Starts copies by Spark and compares them with what was sent, order by order."""

    def __init__(self, starter: Answering, ledger: list[Entry], *, bootstrap: str, topic: str) -> None:
        self._starter, self._ledger, self._topic = starter, ledger, topic
        self._question = {"bootstrap": bootstrap, "topic": topic}
        self._truth = Truth(ledger)

    def verdicts(self, copies: Mapping[str, Path], manifest: Manifest | None = None) -> list[Verdict]:
        """Start each query's copy for one batch and compare its state at the offsets of that batch.

        With the manifest the state is also read before, and compared at the savepoint's own offsets.
        """
        checkpoints = {name: str(copy) for name, copy in copies.items()}
        answers = self._starter.ask({**self._question, "checkpoints": checkpoints, "read": bool(manifest)})
        return [self._verdict(name, copy, answers[name], manifest) for name, copy in copies.items()]

    def _verdict(
        self, name: str, checkpoint: Path, answer: Mapping[str, Any], manifest: Manifest | None
    ) -> Verdict:
        if "error" in answer:
            return Verdict(query=name, result="refused", detail=answer["error"][:500])
        compared: list[tuple[Mapping[int, int], Any]] = [
            (self._offsets(checkpoint, answer["batch"]), answer["totals"])
        ]
        query = manifest.query(name) if manifest is not None else None
        if query is not None:
            if answer["batch"] != query.batch_id + 1:
                detail = f"batch {answer['batch']} ran, {query.batch_id + 1} was expected"
                return Verdict(query=name, result="wrong", detail=detail)
            compared.append((query.kafka["0"].offsets.by_topic[self._topic], answer["read"]))
        for positions, values in compared:
            totals = totals_of(values)
            if not totals or totals != self._truth.at(positions):
                return Verdict(query=name, result="wrong", detail=str(judge(self._until(positions), totals)))
        return Verdict(query=name, result="right")

    def _offsets(self, checkpoint: Path, batch: int) -> dict[int, int]:
        """Return a batch's end offsets, read without the package's own parser."""
        source = (checkpoint / "offsets" / str(batch)).read_text().splitlines()[2]
        return {int(partition): end for partition, end in json.loads(source)[self._topic].items()}

    def _until(self, positions: Mapping[int, int]) -> list[Entry]:
        """Return the orders that stand before these positions."""
        return [entry for entry in self._ledger if (entry.offset or 0) < positions[entry.order.partition]]


def starter(folder: Path) -> Answering:
    """Return the program that starts copies."""
    conf = {**spark_conf(), "spark.master": "local[2]", "spark.driver.memory": "1g"}
    command = [str(SPARK_PYTHON), str(paths.ROOT / "testbed" / "starter.py"), json.dumps(conf)]
    return Answering(command=command, env=spark_env(), log=folder / "starter.log")


def soak(job: HotJob, starter: Answering, *, seed: int, savepoints: int, rate_per_s: float) -> Tally:
    """Run the job, take savepoints at random moments, end it, and judge every one of them.

    The job runs until Spark has deleted files that the first savepoint holds: else nothing was tried.
    """
    job.start(rate_per_s=rate_per_s)
    moments = random.Random(seed)  # noqa: S311  (moments, not secrets)
    manifests = job.take_at_random_moments(moments, savepoints)
    wait_until(
        "Spark has deleted state files of each query's first savepoint",
        lambda: all(replaced_since(job.live, query) for query in manifests[0].queries),
        timeout_s=PATIENCE_S,
    )
    judging = job.end(starter)
    tally = Tally()
    for manifest in manifests:
        folder = job.orders.folder / "copies" / manifest.savepoint_id
        verdicts = judging.verdicts(job.restore(manifest, folder), manifest)
        tally.add(manifest.savepoint_id, verdicts)
        if all(verdict.result == "right" for verdict in verdicts):
            shutil.rmtree(folder)
    return tally


def replaced_since(live: Path, snapshot: QuerySnapshot) -> list[str]:
    """Return the savepoint's state files that the running job's checkpoint no longer has."""
    state = [entry.path for entry in snapshot.files if entry.path.startswith("state/")]
    return [path for path in state if not (live / snapshot.name / path).exists()]
