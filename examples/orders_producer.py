"""Write numbered orders to Kafka, and obey the producer switch of a migration.

What every producer of a job has to do whose Flinkstyle connection says ``producer_switch: store``: look at
the record in the savepoint root, write nothing while it says ``hold``, and to the new cluster after
``release_new``. A hold that nobody renews ends by itself; ``read`` counts that.

    python examples/orders_producer.py --old localhost:9094 --new localhost:9095 --root s3://savepoints/jobs
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch
from airflow_flinkstyle.storage.open import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

CUSTOMERS = 200
NUMBERS = 32_768
"""``orders_job.py`` keeps the numbers of each customer as a bitmap of so many."""


def orders() -> Iterator[tuple[str, bytes]]:
    """Yield customer and order: round robin over the customers, each with its own numbers."""
    for number in range(1, NUMBERS + 1):
        for customer in range(CUSTOMERS):
            name = f"c{customer:03d}"
            order = {"customer": name, "number": number, "amount": 100 + (37 * number + customer) % 9900}
            yield name, json.dumps(order).encode()


def main() -> None:
    """Write until the numbers are used up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--old", required=True, help="Kafka servers of the cluster to begin with")
    parser.add_argument("--new", required=True, help="Kafka servers of the cluster to be released to")
    parser.add_argument("--topic", default="orders")
    parser.add_argument("--root", required=True, help="savepoint root with the switch")
    parser.add_argument("--job", default="orders", help="the job that reads the orders")
    parser.add_argument("--rate", type=float, default=100.0, help="orders per second")
    args = parser.parse_args()

    switch = StoreProducerSwitch(open_store(args.root), f"{args.job}/producers.json")
    servers = {None: args.old, "release_old": args.old, "release_new": args.new}
    producer: Producer | None = None
    told: str | None = "not asked yet"
    waiting = orders()
    while True:
        position = switch.read()
        if position != told:
            if producer is not None:
                producer.flush()  # what was sent is acknowledged before another cluster gets a record
            told = position
            chosen = servers.get(position)
            producer = Producer({"bootstrap.servers": chosen, "acks": "all"}) if chosen else None
            print(f"Writing to {chosen}" if chosen else "Held", flush=True)
        if producer is not None:
            due = list(itertools.islice(waiting, max(1, round(args.rate))))
            if not due:
                producer.flush()
                return
            for customer, order in due:
                producer.produce(args.topic, key=customer, value=order)
            producer.flush()
        time.sleep(1)


if __name__ == "__main__":
    main()
