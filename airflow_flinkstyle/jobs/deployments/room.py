"""How much room a cluster has, from its manager's answers. Pure; None where they name no limit."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_QUANTITY: Final = re.compile(r"([\d.]+(?:[eE][+-]?\d+)?)([EPTGMk]i?|m)?")
_POWERS: Final = {"k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_CPU, _MEMORY = ("requests.cpu", "cpu"), ("requests.memory", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a cluster, a queue or a namespace has free; None for what has no limit or is unknown."""

    where: str
    """In words, such as "queue streams"."""
    cores: float | None = None
    memory_mb: int | None = None
    limit: Room | None = None
    """What may be taken at most, however much the cluster has; None if nothing limits it."""


def of_standalone(page: Mapping[str, Any]) -> Room | None:
    """Return what the living workers of a master have free, from its page as JSON."""
    workers = [worker for worker in page.get("workers") or () if worker.get("state") == "ALIVE"]
    if not workers:
        return None
    return Room(
        where=f"the cluster's {len(workers)} workers",
        cores=sum(float(worker["coresfree"]) for worker in workers),
        memory_mb=sum(int(worker["memoryfree"]) for worker in workers),
    )


def of_yarn(metrics: Mapping[str, Any], scheduler: Mapping[str, Any], queue: str) -> Room | None:
    """Return what a queue may still take, from a ResourceManager's metrics and its scheduler's page.

    Only the CapacityScheduler reports what a queue may take; with others it is what the cluster has. Only
    the queue's memory is a limit: by default that scheduler does not count cores, and does not report it.
    """
    free = metrics.get("clusterMetrics") or {}
    if "availableMB" not in free:
        return None
    cores, memory_mb = float(free.get("availableVirtualCores") or 0), int(free["availableMB"])
    info = (scheduler.get("scheduler") or {}).get("schedulerInfo") or {}
    where, limit_mb = f"queue {queue} of YARN", memory_mb
    for one in _queues(info):
        if queue in (one.get("queueName"), one.get("queuePath")):
            for most, used in _limits(one):
                cores = min(cores, float(most.get("vCores", cores)) - float(used.get("vCores", 0)))
                limit_mb = min(limit_mb, int(most.get("memory", limit_mb)) - int(used.get("memory", 0)))
    limit = Room(where=where, memory_mb=max(0, limit_mb)) if limit_mb < memory_mb else None
    return Room(where=where, cores=max(0.0, cores), memory_mb=max(0, limit_mb), limit=limit)


def of_quotas(quotas: Iterable[Mapping[str, Any]], namespace: str) -> Room | None:
    """Return what a namespace's quotas leave of requested cores and memory; None if none limits them.

    A quota with scopes counts some pods only, perhaps none of a driver's.
    """
    cores: list[float] = []
    memory_mb: list[float] = []
    for quota in quotas:
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        hard, used = status.get("hard") or {}, status.get("used") or {}
        cores += [quantity(hard[name]) - quantity(used.get(name, "0")) for name in _CPU if name in hard]
        memory_mb += [
            (quantity(hard[name]) - quantity(used.get(name, "0"))) / 2**20 for name in _MEMORY if name in hard
        ]
    if not cores and not memory_mb:
        return None
    room = Room(
        where=f"the quota of namespace {namespace}",
        cores=max(0.0, min(cores)) if cores else None,
        memory_mb=max(0, int(min(memory_mb))) if memory_mb else None,
    )
    return replace(room, limit=room)


def quantity(text: str) -> float:
    """Return a quantity as Kubernetes writes it: ``500m``, ``2``, ``1Gi``, ``1500M``, ``1e3``."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        return 0.0
    unit = found[2] or ""
    if unit == "m":
        return float(found[1]) / 1000
    base = 1024 if unit.endswith("i") else 1000
    return float(found[1]) * (base ** _POWERS[unit[0]] if unit else 1)


def _queues(info: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield info
    below = (info.get("queues") or {}).get("queue") or []
    for one in below if isinstance(below, list) else [below]:
        yield from _queues(one)


def _limits(queue: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield what a queue may have at most, and what it has, for the nodes without a label."""
    capacities = (queue.get("capacities") or {}).get("queueCapacitiesByPartition") or ()
    used = (queue.get("resources") or {}).get("resourceUsagesByPartition") or ()
    for most in capacities:
        if most.get("partitionName"):
            continue
        taken = next((one.get("used") for one in used if not one.get("partitionName")), None)
        yield most.get("effectiveMaxResource") or {}, taken or {}
