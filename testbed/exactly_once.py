"""The orders job that writes to Kafka through the transactional sink, and what it has written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from testbed import paths
from testbed.ledger import read_ledger
from testbed.outputs import OutputJudgement, Written, judge_outputs, read_committed
from testbed.scenario import TRIGGER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from airflow_flinkstyle.jobs.spec import JobSpec
    from testbed.judge import Judgement, StateReader
    from testbed.scenario import OrdersScenario
    from testbed.topics import Reached

SCRIPT = paths.ROOT / "examples" / "exactly_once_job.py"
QUERIES = ("orders", "receipts")
_MASTER = "local[2,4]"
"""A task that a zombie fenced is tried again; with ``local[2]`` it would end its query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnceJob:
    """A scenario's job with another script: state as before, and two output topics."""

    orders: OrdersScenario

    def __post_init__(self) -> None:
        """Create the output topics, and let the scenario run this job from now on; it writes to ``old``."""
        for broker in self._clusters:
            for topic in self.topics:
                broker.create_topic(topic, partitions=3)
        self.orders.target = replace(self.orders.target, master=_MASTER)
        self.orders.spec = self.spec(shards=2, out=self.orders.old)

    @property
    def _clusters(self) -> Iterable[Reached]:
        """Return both, or the only one."""
        return dict.fromkeys((self.orders.old, self.orders.new))

    @property
    def topics(self) -> tuple[str, str]:
        """Receipts and totals; no mirror of the test bed copies them."""
        return f"receipts-{self.orders.topic}", f"totals-{self.orders.topic}"

    def spec(self, *, shards: int, out: Reached) -> JobSpec:
        """Return the job with this number of shards, and where it writes."""
        receipts, totals = self.topics
        args = {
            "bootstrap": self.orders.old.bootstrap,
            "topic": self.orders.topic,
            "sink-bootstrap": out.bootstrap,
            "receipts": receipts,
            "totals": totals,
            "shards": str(shards),
            "trigger": TRIGGER,
        }
        flat = tuple(part for name, value in args.items() for part in (f"--{name}", value))
        # The sink of this checkout, also where Spark's environment has another one installed.
        env = {"PYTHONPATH": str(paths.ROOT)}
        return replace(self.orders.spec, script=str(SCRIPT), args=flat, env=env)

    def _written(self, topic: str) -> Iterator[Written]:
        """Yield what stands in a topic of both clusters."""
        for broker in self._clusters:
            yield from read_committed(broker, topic)

    def judge(
        self, reader: StateReader, broker: Reached, *, watch: Callable[[], object] = lambda: None
    ) -> tuple[Judgement, OutputJudgement]:
        """End the producer, let both queries read everything, and judge state and output.

        Args:
            reader: Of the state.
            broker: Where the job reads.
            watch: Called until everything is read: what starts a driver again that a fault has ended.
        """
        judgement = self.orders.judge(reader, broker, watch=watch)
        self.orders.wait_all_read(broker, query="receipts", watch=watch)
        receipts, totals = map(self._written, self.topics)
        state = reader.read(self.orders.checkpoint())
        return judgement, judge_outputs(
            read_ledger(self.orders.ledger), state, receipts=receipts, totals=totals
        )
