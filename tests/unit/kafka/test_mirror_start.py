"""Where a mirror that has not begun is to begin."""

from __future__ import annotations

from airflow_flinkstyle.kafka.mirror import MirrorSettings
from airflow_flinkstyle.kafka.mirror_start import position_record


def test_position_has_the_bytes_that_mirrormaker_writes_itself():
    mirror = MirrorSettings(source_alias="sa", target_alias="sb")
    key, value = position_record(mirror, ("q.same", 0), 11_400)
    assert key == b'["MirrorSourceConnector",{"cluster":"sa","partition":0,"topic":"q.same"}]'
    assert value == b'{"offset":11399}', "the last record that is copied already, not the first to copy"
