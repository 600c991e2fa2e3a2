"""What a driver with its executors takes on its cluster, by Spark's settings, and whether there is room.

Shown before a standby comes up beside the job that runs. Defaults are those of Spark's configuration page
(``spark.{driver,executor}.{memory,memoryOverhead,cores}``, ``spark.executor.instances``).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.kubernetes.deployment import Kubernetes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.deployments.room import Room
    from airflow_flinkstyle.jobs.spec import JobSpec
    from airflow_flinkstyle.jobs.target import SubmitTarget

_LEAST_OVERHEAD_MB: Final = 384
_OVERHEAD, _OVERHEAD_ON_KUBERNETES = 0.10, 0.40
"""Share of the memory; on Kubernetes for programs in Python."""
_UNITS: Final = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2, "p": 1024**3, "": 1}
_SIZE: Final = re.compile(r"(\d+)\s*([kmgtp]?)b?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The resources that a driver and its executors ask for."""

    driver_cores: float
    driver_mb: int
    """With its overhead; 0 where the driver runs on the worker's machine."""
    executors: int | None
    """At its start; None for as many as the cluster has room for."""
    executor_cores: float
    executor_mb: int

    @property
    def cores(self) -> float:
        """Of driver and executors together; counts one executor if their number is open."""
        return self.driver_cores + self.executor_cores * (1 if self.executors is None else self.executors)

    @property
    def memory_mb(self) -> int:
        """As ``cores``, in MiB."""
        return self.driver_mb + self.executor_mb * (1 if self.executors is None else self.executors)

    @property
    def least(self) -> Footprint:
        """What it needs to start: the driver with one executor."""
        return self if self.executors == 0 else replace(self, executors=1)

    def __str__(self) -> str:
        """Describe it."""
        driver = "a driver on the worker's machine"
        if self.driver_cores or self.driver_mb:
            driver = f"a driver with {_cores_and_memory(self.driver_cores, self.driver_mb)}"
        if self.executors is None:
            return f"{driver}, and executors on all cores that are free"
        if self.executors == 0:
            return driver
        each = _cores_and_memory(self.executor_cores, self.executor_mb)
        one = f"1 executor with {each}"
        executors = one if self.executors == 1 else f"{self.executors} executors with {each} each"
        return f"{_cores_and_memory(self.cores, self.memory_mb)} ({driver}; {executors})"


def footprint(spec: JobSpec, target: SubmitTarget) -> Footprint:
    """Return what a driver of a job asks for on a target.

    Raises:
        BadInputError: If a setting is not a size or a number.
    """
    conf = {**target.conf, **spec.conf}
    on_cluster = target.deployment.how.deploy_mode == "cluster"
    on_standalone = target.master.startswith("spark://")
    factor = _OVERHEAD_ON_KUBERNETES if target.master.startswith("k8s://") else _OVERHEAD
    executor_cores = _cores(conf, target, "executor")
    executors: int | None = _executors(conf)
    if on_standalone:
        most = conf.get("spark.cores.max")
        executors = math.ceil(_number(conf, "spark.cores.max") / executor_cores) if most else None
    elif target.master.startswith("local"):
        executors = 0
    return Footprint(
        driver_cores=_cores(conf, target, "driver") if on_cluster else 0,
        driver_mb=_memory(conf, "driver", 0 if on_standalone else factor) if on_cluster else 0,
        executors=executors,
        executor_cores=executor_cores,
        executor_mb=_memory(conf, "executor", 0 if on_standalone else factor),
    )


def lack(needed: Footprint, room: Room | None) -> str | None:
    """Describe what a cluster has too little of; None if there is room, or that is unknown."""
    if room is None:
        return None
    short = []
    if room.cores is not None and room.cores < needed.cores:
        short.append(f"{room.cores:g} of {needed.cores:g} cores")
    if room.memory_mb is not None and room.memory_mb < needed.memory_mb:
        short.append(f"{_gib(room.memory_mb)} of {_gib(needed.memory_mb)}")
    return f"{room.where} has {' and '.join(short)} free" if short else None


def beyond(needed: Footprint, target: SubmitTarget) -> str | None:
    """Describe the connection's limits that a standby would exceed; None if none."""
    over = []
    if target.standby_cores is not None and needed.cores > target.standby_cores:
        over.append(f"{needed.cores:g} cores, {target.standby_cores:g} are allowed")
    if target.standby_memory is not None:
        allowed_mb = size_mb("standby-memory", target.standby_memory)
        if needed.memory_mb > allowed_mb:
            over.append(f"{_gib(needed.memory_mb)}, {_gib(allowed_mb)} are allowed")
    if needed.executors is None and (target.standby_cores or target.standby_memory):
        over.append("all cores that are free: set spark.cores.max")
    return "; ".join(over) or None


def size_mb(name: str, text: str) -> int:
    """Return a size as Spark writes it, ``512m`` or ``4g``, in MiB.

    Raises:
        BadInputError: If it is no size.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise _not(name, "a size such as 512m or 4g", text)
    return math.ceil(int(found[1]) * _UNITS[found[2].lower()])


def _executors(conf: Mapping[str, str]) -> int:
    fixed = int(_number(conf, "spark.executor.instances", 2))
    dynamic = "spark.dynamicAllocation"
    if conf.get(f"{dynamic}.enabled") != "true":
        return fixed
    least = [int(_number(conf, f"{dynamic}.{name}", 0)) for name in ("minExecutors", "initialExecutors")]
    return max(*least, fixed if "spark.executor.instances" in conf else 0)


def _cores(conf: Mapping[str, str], target: SubmitTarget, role: str) -> float:
    name = f"spark.kubernetes.{role}.request.cores"
    asked = conf.get(name) if isinstance(target.deployment, Kubernetes) else None
    if asked is None:
        return _number(conf, f"spark.{role}.cores", 1)
    return _number({name: asked.removesuffix("m")}, name) / (1000 if asked.endswith("m") else 1)


def _memory(conf: Mapping[str, str], role: str, factor: float) -> int:
    own_mb = size_mb(f"spark.{role}.memory", conf.get(f"spark.{role}.memory", "1g"))
    if (python := conf.get(f"spark.{role}.pyspark.memory")) is not None:
        own_mb += size_mb(f"spark.{role}.pyspark.memory", python)
    if (given := conf.get(f"spark.{role}.memoryOverhead")) is not None:
        return own_mb + size_mb(f"spark.{role}.memoryOverhead", given)
    share = _number(conf, f"spark.{role}.memoryOverheadFactor", factor)
    return own_mb + (max(_LEAST_OVERHEAD_MB, math.ceil(share * own_mb)) if share else 0)


def _number(conf: Mapping[str, str], name: str, default: float = 0) -> float:
    try:
        return float(conf.get(name, default))
    except ValueError as error:
        raise _not(name, "a number", conf[name]) from error


def _cores_and_memory(cores: float, memory_mb: int) -> str:
    return f"{cores:g} {'core' if cores == 1 else 'cores'} and {_gib(memory_mb)}"


def _gib(size: int) -> str:
    return f"{size / 1024:.1f} GiB"


def _not(name: str, expected: str, found: str) -> BadInputError:
    return BadInputError(
        f"{expected.capitalize()} was expected for {name}, found {found!r}.",
        state_after="Nothing was started.",
        remedy="Correct it in the job's conf or in the Spark connection's extra.",
    )
