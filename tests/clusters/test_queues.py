"""What a queue of a real ResourceManager still has, and a driver that it does not begin."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.cutover.steps import require_room
from airflow_flinkstyle.jobs.deployments.room import Room
from airflow_flinkstyle.jobs.deployments.yarn import Yarn, YarnDeployment
from airflow_flinkstyle.jobs.errors import NO_ROOM
from testbed.refusals import refuses
from testbed.waiting import wait_until
from testbed.yarn import Yarn as YarnCluster
from tests.integration.detached_lab import Lab

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("place", ["yarn"])
def test_queue_without_room_for_a_standby_is_an_error_before_anything_is_started(place: str, tmp_path: Path):
    with YarnCluster(
        tmp_path / place, memory_mb=8192, cores=8, queues={"default": 75, "streams": 25}
    ) as yarn:
        lab = Lab(tmp_path)
        conf = {"spark.yarn.queue": "streams", "spark.executor.instances": "1"}
        own = Yarn(cluster_url=yarn.url)
        target = replace(lab.target(), master="yarn", deployment=own, conf=conf)
        deployment = YarnDeployment(own, conf=conf)

        def has_memory() -> bool:  # the metrics have a node some moments after it is registered
            room = deployment.room()
            return room is not None and bool(room.memory_mb)

        wait_until("the metrics have the node", has_memory)
        room = deployment.room()
        assert room is not None
        assert room.limit == Room(where="queue streams of YARN", memory_mb=2048)
        with refuses(NO_ROOM, match=r"queue streams of YARN has 2\.0 GiB of 2\.8 GiB free"):
            require_room(lab.client.view, lab.spec(), target)
        other = replace(target, conf={**conf, "spark.yarn.queue": "default"})
        assert require_room(lab.client.view, lab.spec(), other)[1]
