"""Reading logs from brokers that do not answer."""

from __future__ import annotations

import socket

from airflow_flinkstyle.kafka.errors import READ_STALLED
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.kafka.settings import KafkaCluster
from testbed.refusals import refuses


def test_brokers_that_say_nothing_end_a_read():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        cluster = KafkaCluster(name="orders", config={"bootstrap.servers": address})
        ranges = {("orders", 0): ReadRange(low=0, high=7)}
        with refuses(READ_STALLED, match=r"nothing arrived for 0\.1 s") as stalled:
            scan(cluster, ranges, lambda _, __: None, "read_committed", stall_s=0.1)
    assert stalled.value.retryable
