"""What a standby takes, and whether a cluster has it, by answers as the managers give them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.room import Room, of_quotas, of_standalone, of_yarn, quantity
from airflow_flinkstyle.jobs.placement import Footprint, beyond, footprint, lack
from tests.unit.jobs.specs import a_spec, a_target


def of(master: str, conf: dict[str, str], **changes: Any) -> Footprint:
    return footprint(a_spec(conf={}), a_target(master=master, deploy_mode="cluster", conf=conf, **changes))


@pytest.mark.parametrize(
    ("master", "conf", "cores", "memory_mb"),
    [
        ("yarn", {}, 3, 3 * (1024 + 384)),  # Spark's own defaults: two executors
        ("yarn", {"spark.executor.instances": "4", "spark.executor.cores": "2"}, 9, 5 * (1024 + 384)),
        ("yarn", {"spark.driver.memory": "8g", "spark.executor.memory": "8g"}, 3, 3 * 9012),
        ("yarn", {"spark.executor.memoryOverhead": "1g"}, 3, 1024 + 384 + 2 * 2048),
        ("yarn", {"spark.executor.pyspark.memory": "1g"}, 3, 1024 + 384 + 2 * (2048 + 384)),
        (
            "yarn",
            {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.minExecutors": "1"},
            2,
            2 * (1024 + 384),
        ),
        ("k8s://https://api", {}, 3, 3 * (1024 + 410)),
        (
            "k8s://https://api",
            {
                "spark.kubernetes.driver.request.cores": "500m",
                "spark.kubernetes.executor.request.cores": "0.5",
            },
            1.5,
            3 * (1024 + 410),
        ),
        ("spark://m:7077", {"spark.cores.max": "6", "spark.executor.cores": "2"}, 7, 4 * 1024),
    ],
)
def test_footprint_is_what_spark_asks_its_cluster_for(
    master: str, conf: dict[str, str], cores: float, memory_mb: int
):
    found = of(master, conf)
    assert (found.cores, found.memory_mb) == (cores, memory_mb)


def test_driver_on_the_workers_machine_asks_the_cluster_for_its_executors_only():
    found = footprint(a_spec(), a_target(master="yarn", conf={}))
    assert (found.driver_cores, found.driver_mb, found.executors) == (0, 0, 2)
    assert footprint(a_spec(), a_target()).executors == 0


def test_footprint_says_what_it_is_made_of():
    assert str(of("yarn", {"spark.executor.instances": "4"})) == (
        "5 cores and 6.9 GiB (a driver with 1 core and 1.4 GiB; 4 executors with 1 core and 1.4 GiB each)"
    )
    assert str(of("yarn", {"spark.executor.instances": "1", "spark.executor.cores": "2"})) == (
        "3 cores and 2.8 GiB (a driver with 1 core and 1.4 GiB; 1 executor with 2 cores and 1.4 GiB)"
    )
    assert "all cores that are free" in str(of("spark://m:7077", {}))


def test_footprint_says_where_a_driver_is_that_asks_no_cluster():
    assert str(footprint(a_spec(), a_target())) == "a driver on the worker's machine"
    assert str(footprint(a_spec(), a_target(master="yarn", conf={"spark.executor.instances": "1"}))) == (
        "1 core and 1.4 GiB (a driver on the worker's machine; 1 executor with 1 core and 1.4 GiB)"
    )
    assert str(footprint(a_spec(), a_target(master="spark://m:7077", conf={}))) == (
        "a driver on the worker's machine, and executors on all cores that are free"
    )
    alone = of("yarn", {"spark.dynamicAllocation.enabled": "true"})
    assert str(alone) == "a driver with 1 core and 1.4 GiB"


def test_setting_that_is_no_size_is_refused_by_its_name():
    with pytest.raises(BadInputError, match=r"spark\.executor\.memory, found 'much'"):
        of("yarn", {"spark.executor.memory": "much"})
    with pytest.raises(BadInputError, match=r"spark\.executor\.instances"):
        of("yarn", {"spark.executor.instances": "two"})
    with pytest.raises(BadInputError, match=r"request\.cores, found 'halfm?'"):
        of("k8s://https://api", {"spark.kubernetes.driver.request.cores": "halfm"})


def test_room_of_a_master_is_what_its_living_workers_have_free():
    worker = {"state": "ALIVE", "coresfree": 2, "memoryfree": 3072}
    room = of_standalone({"workers": [worker, worker, {**worker, "state": "DEAD"}]})
    assert room == Room(where="the cluster's 2 workers", cores=4, memory_mb=6144)
    assert of_standalone({}) is None


METRICS = {"clusterMetrics": {"availableMB": 8192, "availableVirtualCores": 16}}


def a_queue(name: str, most_mb: int, used_mb: int) -> dict[str, Any]:
    return {
        "queueName": name,
        "capacities": {
            "queueCapacitiesByPartition": [
                {"partitionName": "", "effectiveMaxResource": {"memory": most_mb, "vCores": 8}}
            ]
        },
        "resources": {
            "resourceUsagesByPartition": [{"partitionName": "", "used": {"memory": used_mb, "vCores": 1}}]
        },
    }


def test_room_of_yarn_is_what_the_queue_may_still_take():
    scheduler = {"scheduler": {"schedulerInfo": {"queues": {"queue": [a_queue("streams", 4096, 3072)]}}}}
    room = of_yarn(METRICS, scheduler, "streams")
    where = "queue streams of YARN"
    assert room == Room(where=where, cores=7, memory_mb=1024, limit=Room(where=where, memory_mb=1024))
    assert of_yarn(METRICS, {}, "default") == Room(where="queue default of YARN", cores=16, memory_mb=8192)
    assert of_yarn({}, {}, "default") is None


def test_queue_limits_no_cores_since_yarn_may_not_count_them():
    scheduler = {"scheduler": {"schedulerInfo": {"queues": {"queue": [a_queue("streams", 9999, 0)]}}}}
    busy = {"clusterMetrics": {"availableMB": 8192, "availableVirtualCores": 0}}
    assert of_yarn(busy, scheduler, "streams") == Room(where="queue streams of YARN", cores=0, memory_mb=8192)


def test_room_of_a_namespace_is_what_its_quotas_leave():
    quotas = [
        {"status": {"hard": {"requests.memory": "4Gi", "pods": "5"}, "used": {"requests.memory": "1Gi"}}},
        {"status": {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "1500m"}}},
    ]
    room = of_quotas(quotas, "streams")
    left = Room(where="the quota of namespace streams", cores=0.5, memory_mb=3072)
    assert room == replace(left, limit=left)
    full = {"hard": {"requests.cpu": "1"}, "used": {"requests.cpu": "1"}}
    for scope in (
        {"scopes": ["BestEffort"]},
        {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass"}]}},
    ):
        assert of_quotas([*quotas, {"spec": scope, "status": full}], "streams") == room
    assert of_quotas([{"status": {"hard": {"pods": "5"}}}], "streams") is None
    written = {"500m": 0.5, "2": 2, "1Gi": 2**30, "1500M": 1.5e9, "1e3": 1000, "1E": 1e18, "?": 0}
    assert {text: quantity(text) for text in written} == written


def test_what_is_lacking_is_told_in_numbers():
    needed = of("yarn", {})
    assert lack(needed, None) is None
    assert lack(needed, Room(where="it", cores=3, memory_mb=9999)) is None
    assert lack(needed, Room(where="it", cores=2, memory_mb=1024)) == (
        "it has 2 of 3 cores and 1.0 GiB of 4.1 GiB free"
    )
    assert (needed.least.executors, needed.least.cores) == (1, 2)


def test_limit_of_the_connection_is_kept():
    def over(**limits: Any) -> str | None:
        target = a_target(master="yarn", deploy_mode="cluster", conf={}, **limits)
        return beyond(footprint(a_spec(), target), target)

    assert over() is None
    assert over(standby_cores=3, standby_memory="5g") is None
    assert over(standby_cores=2) == "3 cores, 2 are allowed"
    assert over(standby_memory="4g") == "4.1 GiB, 4.0 GiB are allowed"
    with pytest.raises(BadInputError, match="standby-memory"):
        over(standby_memory="much")
