from __future__ import annotations

from airflow_flinkstyle.agent.run import scratch
from airflow_flinkstyle.checkpoint import offset_log
from tests.unit.agent.job_queries import a_query_of_two_batches
from tests.unit.agent.views import a_view


def test_copy_on_another_cluster_reads_the_newest_records_that_are_there():
    """Partitions that it has not read are read, and those that are not there are not."""
    copy = a_query_of_two_batches(committed=2)
    scratch.read_newest(lambda _source: a_view({1: 100, 2: 3}), copy, records=20)
    log = offset_log.parse(copy.checkpoint.read("offsets/1").decode())
    assert log.kafka_offsets("0") == {("t", 1): 90, ("t", 2): 0}


def test_copies_stand_beside_the_checkpoint_and_never_among_its_queries():
    assert scratch.location_of("s3://bucket/checkpoints-2/") == "s3://bucket/checkpoints-2.rehearsal"
