"""Compares what stands in the topics that a job wrote, as readers of committed records see them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from testbed.judge import Total
    from testbed.ledger import Entry
    from testbed.topics import Reached

_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """One record of an output topic."""

    customer: str
    value: Mapping[str, int | str]
    at_ms: int
    """When the job wrote it."""
    place: str
    """Cluster, partition and offset, to look for the cause of a wrong one."""

    @property
    def at(self) -> str:
        """Return where and when."""
        return f"{self.place}, {self.at_ms} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputJudgement:
    """What became of every order and every total in the output."""

    records: int
    """In both topics."""
    lost: tuple[tuple[str, int], ...]
    """Customer and number of each acknowledged order without a receipt."""
    twice: tuple[str, ...]
    """Receipts beyond an order's first, and totals that do not come behind the one before."""
    unknown: tuple[tuple[str, int], ...]
    """Receipts for orders that nobody ever sent."""
    stale: tuple[str, ...]
    """Customers whose last total is not what the job's state says."""

    @property
    def right(self) -> bool:
        """True if each acknowledged order has one receipt, and each total was written once, in order."""
        return not (self.lost or self.twice or self.unknown or self.stale)

    def __str__(self) -> str:
        """Return the numbers, and the first of what is wrong."""
        text = f"{self.records} records written, lost {len(self.lost)}, twice {len(self.twice)}"
        wrong = [*map(str, self.lost), *self.twice, *map(str, self.unknown), *self.stale]
        if wrong:
            text += f", never sent {len(self.unknown)}, stale {len(self.stale)}: {'; '.join(wrong[:10])}"
        return text


def judge_outputs(
    ledger: Iterable[Entry],
    state: Mapping[str, Total],
    *,
    receipts: Iterable[Written],
    totals: Iterable[Written],
) -> OutputJudgement:
    """Compare; an order whose acknowledgement is unknown may have a receipt or none."""
    sent: dict[tuple[str, int], bool] = {
        (entry.order.customer, entry.order.number): entry.offset is not None for entry in ledger
    }
    seen: Counter[tuple[str, int]] = Counter()
    twice: list[str] = []
    for receipt in receipts:
        order = (receipt.customer, int(receipt.value["number"]))
        seen[order] += 1
        if seen[order] > 1:
            twice.append(f"receipt for {order} once more at {receipt.at}")
    last: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    written = 0
    for total in sorted(totals, key=attrgetter("at_ms")):  # where a sink has moved, of both clusters
        written += 1
        now = int(total.value["orders"]), int(total.value["amount"])
        if now[0] <= last[total.customer][0]:
            twice.append(f"total {now} of {total.customer} behind {last[total.customer]} at {total.at}")
        last[total.customer] = now
    known = {customer: (total.orders, total.amount) for customer, total in state.items()}
    return OutputJudgement(
        records=seen.total() + written,
        lost=tuple(sorted(order for order, certain in sent.items() if certain and order not in seen)),
        twice=tuple(twice),
        unknown=tuple(sorted(seen.keys() - sent.keys())),
        stale=tuple(sorted(name for name in known.keys() | last.keys() if known.get(name) != last[name])),
    )


def read_committed(broker: Reached, topic: str) -> Iterable[Written]:
    """Yield every committed record of a topic; a customer's in the order of the log.

    A commit's end is written to each partition a moment after it is answered: the whole log is waited for.
    """
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "outputs",
            "isolation.level": "read_committed",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
        }
    )
    try:
        spans = broker.log_range(topic)
        consumer.assign([TopicPartition(topic, number, start) for number, (start, _) in spans.items()])
        left = set(spans)
        while left:
            records: Sequence[Any] = consumer.consume(1000, timeout=_TIMEOUT_S)
            if not records:
                raise TimeoutError(f"No end of {topic} within {_TIMEOUT_S:g} s: a transaction may be open")
            for record in records:
                error = record.error()
                if error is None:
                    yield _written(broker.name, record)
                elif error.name() != "_PARTITION_EOF":
                    raise KafkaException(error)
                elif record.offset() >= spans[record.partition()][1]:
                    left.discard(record.partition())
    finally:
        consumer.close()


def _written(cluster: str, record: Any) -> Written:  # noqa: ANN401  (the client's message has no public type)
    return Written(
        customer=record.key().decode(),
        value=json.loads(record.value()),
        at_ms=record.timestamp()[1],
        place=f"{cluster}, partition {record.partition()}, offset {record.offset()}",
    )
