"""What MirrorMaker notes, read from a real one through the command line."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.kafka.errors import MirrorPositionMissingError, MirrorTopicMissingError
from airflow_flinkstyle.kafka.groups import set_group_offsets
from airflow_flinkstyle.kafka.mirror.found import find_mirror
from airflow_flinkstyle.kafka.mirror.lag import CaughtUp, wait_caught_up
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.mirror.status import mirror_status
from airflow_flinkstyle.kafka.mirror.topics import read_checkpoints, read_offset_syncs
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.offsets import Offsets
from testbed.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.kafka import KafkaPair
    from testbed.mirror import Mirror

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

TOPIC, UNMIRRORED, GROUP = "mirrored.status", "unmirrored.status", "status-group"
MIRROR = MirrorSettings(source_alias="old", target_alias="new")
RECORDS, READ = 300, 150


@dataclass(frozen=True, kw_only=True)
class Bed:
    old: KafkaCluster
    new: KafkaCluster
    files: dict[str, Path]

    def run(self, *args: str, code: int) -> Result:
        """Run ``flinkstyle mirror status`` between the two clusters."""
        options = ["--source-alias", "old", "--target-alias", "new"]
        for side, file in self.files.items():
            options += [f"--{side}-config", str(file)]
        result = CliRunner().invoke(app, ["mirror", "status", *options, *args], env={"COLUMNS": "240"})
        assert result.exit_code == code, result.output
        return result


def produce(cluster: KafkaCluster, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(dict(cluster.config))
    for number in range(count):
        producer.produce(topic, value=f"record-{number}", partition=0)
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def bed(kafka_pair: Any, mirror: Mirror, tmp_path_factory: pytest.TempPathFactory) -> Bed:  # noqa: ANN401
    """One mirrored topic, in sync, of which a group has read the half; and one that no mirror copies."""
    assert mirror.service.is_running
    folder = tmp_path_factory.mktemp("clusters")
    clusters, files = {}, {}
    for side, broker in (("source", kafka_pair.old), ("target", kafka_pair.new)):
        clusters[side] = KafkaCluster(
            name=side, config={"bootstrap.servers": broker.bootstrap}, patience_s=PATIENCE_S
        )
        files[side] = folder / f"{side}.properties"
        files[side].write_text(f"# {side}\nbootstrap.servers={broker.bootstrap}\n")
    kafka_pair.old.create_topic(TOPIC, partitions=1)
    kafka_pair.old.create_topic(UNMIRRORED, partitions=1)
    produce(clusters["source"], TOPIC, RECORDS)
    produce(clusters["source"], UNMIRRORED, 7)
    set_group_offsets(clusters["source"], GROUP, Offsets({(TOPIC, 0): READ}))
    outcome = wait_caught_up(clusters["source"], clusters["target"], MIRROR, [TOPIC], timeout_s=PATIENCE_S)
    assert isinstance(outcome, CaughtUp)
    return Bed(old=clusters["source"], new=clusters["target"], files=files)


def test_mirror_is_found_by_its_own_topics(bed: Bed, kafka_pair: KafkaPair):
    found = find_mirror(bed.old, bed.new, [TOPIC])
    assert (found.source_aliases, found.replication_policy) == (("old",), "identity")
    assert "new" in found.target_aliases, "and those to which other tests mirror"
    # Dedicated mode sends heartbeats back, and keeps where it is with them.
    kafka_pair.old.wait_for_topic("mm2-offsets.new.internal")
    back = find_mirror(bed.new, bed.old, [TOPIC])
    assert back.source_aliases == (), "nothing is mirrored back"


def test_topic_in_sync_shows_positions_syncs_and_ends_with_0(bed: Bed):
    found = json.loads(bed.run("--topic", TOPIC, "--json", code=0).stdout)
    (partition,) = found["partitions"]
    assert found["in_sync"]
    assert found["absent"] == []
    assert (partition["source_end"], partition["mirrored_to"], partition["lag_records"]) == (300, 300, 0)
    assert partition["target_end"] >= RECORDS
    assert partition["last_sync"]["upstream"] < RECORDS
    assert 0 <= found["newest_sync_age_s"] < 300


def test_group_goes_on_where_mirrormakers_checkpoint_says_never_behind_the_true_place(bed: Bed):
    deadline = time.monotonic() + 60
    while True:
        found = mirror_status(bed.old, bed.new, MIRROR, [TOPIC])
        groups = [group for group in found.groups if group.group == GROUP]
        if groups or time.monotonic() > deadline:
            break
        time.sleep(1)
    (group,) = groups
    assert (group.topic, group.upstream, group.unread_on_source) == (TOPIC, READ, RECORDS - READ)
    assert group.unread_on_target >= group.unread_on_source
    assert f"{GROUP}  {TOPIC}" in bed.run("--topic", TOPIC, "--groups", code=0).stdout


def test_topic_that_is_not_mirrored_is_behind_and_ends_with_3(bed: Bed):
    result = bed.run("--topic", TOPIC, "--topic", UNMIRRORED, code=3)
    assert "1 of 2 partitions are in sync" in result.stdout
    (row,) = [line.split() for line in result.stdout.splitlines() if line.startswith(UNMIRRORED)]
    assert row == [UNMIRRORED, "0", UNMIRRORED, "7", "-", "-", "7", "-", "-"]


def test_all_mirrored_topics_are_shown_unless_some_are_named(bed: Bed):
    found = mirror_status(bed.old, bed.new, MIRROR)
    assert TOPIC in {one.topic for one in found.partitions}
    assert UNMIRRORED not in {one.topic for one in found.partitions}


def test_missing_topics_of_mirrormaker_are_named_and_positions_are_needed(bed: Bed):
    elsewhere = MirrorSettings(source_alias="old", target_alias="elsewhere")
    absent = "mm2-offset-syncs.elsewhere.internal"
    assert mirror_status(bed.old, bed.new, elsewhere, [TOPIC]).absent == (absent,)
    with pytest.raises(MirrorTopicMissingError, match=absent):
        read_offset_syncs(bed.old, bed.new, elsewhere)
    nobody = MirrorSettings(source_alias="nobody", target_alias="new")
    with pytest.raises(MirrorTopicMissingError, match=r"nobody\.checkpoints\.internal"):
        read_checkpoints(bed.new, nobody)
    with pytest.raises(MirrorPositionMissingError, match=r"mm2-offsets\.nobody\.internal"):
        mirror_status(bed.old, bed.new, nobody)
