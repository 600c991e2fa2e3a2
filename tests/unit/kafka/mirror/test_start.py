"""Where a mirror that has not begun is to begin."""

from __future__ import annotations

from airflow_flinkstyle.kafka.mirror.lag import MirrorBehind
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.mirror.start import position_record


def test_position_has_the_bytes_that_mirrormaker_writes_itself():
    mirror = MirrorSettings(source_alias="sa", target_alias="sb")
    key, value = position_record(mirror, ("q.same", 0), 11_400)
    assert key == b'["MirrorSourceConnector",{"cluster":"sa","partition":0,"topic":"q.same"}]'
    assert value == b'{"offset":11399}', "the last record that is copied already, not the first to copy"


def test_lag_of_many_partitions_names_the_worst_and_counts_the_others():
    lag = {("t", number): number for number in range(1, 10_001)}
    said = MirrorBehind(lag=lag, waited_s=3.0).describe()
    assert said.startswith("MirrorMaker is 50005000 records behind after 3 s (t-10000: 10000, t-9999: 9999,")
    assert said.endswith("and 9950 partitions more).")
    assert len(said) < 1000
