"""Describe a topic of many partitions as the start guard does, and partition by partition as it did before.

``many_partitions.py SERVERS TOPIC --rounds N``: the answer is the last line, a JSON object of seconds by way.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.spark.kafka import REQUEST_TIMEOUT_S, client_options, describe_source
from airflow_flinkstyle.agent.spark.sources import sources_of
from testbed.session import local_session
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.spark import StreamingSource
    from airflow_flinkstyle.agent.spark.untyped import Java

BULK, ONE_BY_ONE = "in bulk", "one by one"


def main() -> None:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("--rounds", type=int, required=True)
    args = parser.parse_args()
    with local_session(spark_paths(), {"spark.driver.memory": "1g"}) as spark:
        options = {"kafka.bootstrap.servers": args.servers, "subscribe": args.topic}
        (source,) = sources_of(spark.readStream.format("kafka").options(**options).load())
        jvm = spark._jvm  # noqa: SLF001  # as the agent has it
        ways = {
            BULK: lambda: len(describe_source(jvm, source).topics[args.topic].partitions),
            ONE_BY_ONE: lambda: one_by_one(jvm, source),
        }
        seconds: dict[str, list[float]] = {BULK: [], ONE_BY_ONE: []}
        for number in range(-1, args.rounds):  # the first round warms both
            found = set()
            for way in list(ways)[:: -1 if number % 2 else 1]:
                began_s = time.perf_counter()
                found.add(ways[way]())
                if number >= 0:
                    seconds[way].append(time.perf_counter() - began_s)
            if len(found) != 1:
                raise AssertionError(f"both should find the same partitions, found {found}")
    print(json.dumps(seconds))  # noqa: T201  (its purpose)


def one_by_one(jvm: Java, source: StreamingSource) -> int:
    """Ask for starts and ends, each partition by calls of its own; returns their number."""
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(
        client_options(jvm, source, timeout_s=REQUEST_TIMEOUT_S)
    )
    try:
        names = jvm.java.util.ArrayList()
        names.add(source.option("subscribe"))
        topics = admin.describeTopics(names).allTopicNames().get()
        partitions = [
            (topic, info.partition())
            for topic, description in topics.items()
            for info in description.partitions()
        ]
        specs = jvm.org.apache.kafka.clients.admin.OffsetSpec
        options = jvm.org.apache.kafka.clients.admin.ListOffsetsOptions()
        partition = jvm.org.apache.kafka.common.TopicPartition
        offsets: dict[tuple[str, int], int] = {}
        for spec in (specs.earliest(), specs.latest()):
            wanted = jvm.java.util.HashMap()
            for topic, number in partitions:
                wanted.put(partition(topic, number), spec)
            found = admin.listOffsets(wanted, options).all().get()
            offsets = {(tp.topic(), tp.partition()): result.offset() for tp, result in found.items()}
        return len(offsets)
    finally:
        admin.close()


if __name__ == "__main__":
    main()
