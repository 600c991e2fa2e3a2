"""What a pod's record and events mean: whether the driver lives, and why it does not. Pure."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.jobs.deployments.base import Alive, DriverPending, DriverState, Gone, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CONTAINER: Final = "spark-kubernetes-driver"
"""Spark's name for the driver's container; a pod template may give it another."""
_ENDED = ("Succeeded", "Failed")
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError")
_NOT_MADE = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_SHOWN_EVENTS = 3
_NOT_MOUNTED: Final = "FailedMount"
_MOUNT_GRACE_S: Final = 60.0
"""Spark makes a pod before the ConfigMap that it mounts: for about a second this is no fault. If its
submitter ends in between, as an operator that is throttled or restarted, the ConfigMap never comes."""
_SIGNALLED = 128
_API_MESSAGE = re.compile(r"Message: (.+?)\.? (?:Received status|Failure executing)|Message: (.+)")
_QUOTA = "exceeded quota"
NO_POD: Final = "The API server knows no such pod: it was deleted, or was never made."


def state_of(pod: Mapping[str, Any]) -> DriverState:
    """Return the state of a driver's process, from the API server's record of its pod.

    Only a report of the node proves its end. If the node is lost, the control plane sets the pod to
    ``Failed`` while its process may still run.
    """
    status = pod.get("status") or {}
    phase = status.get("phase")
    if phase == "Pending":
        why, may_pass = _why_waiting(pod)
        return DriverPending(why, may_pass=may_pass)
    if phase == "Running":
        return Gone() if _has_ended(pod) else Alive()
    if phase not in _ENDED:
        return Unknown(f"its pod is in phase {phase}: the node does not report")
    if _disrupted_by(status) == "DeletionByPodGC":
        return Unknown("its node is lost: Kubernetes gave the pod up and does not know whether it runs")
    if any("running" in (one.get("state") or {}) for one in status.get("containerStatuses") or ()):
        return Unknown(f"its pod is {phase}, but the node did not report that the container ended")
    return Gone()


def describe_pod(pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return why a driver's pod does not run, or how it ended; empty if it runs.

    Args:
        pod: As the API server has it.
        events: Of the pod, in any order.
    """
    status = pod.get("status") or {}
    phase, name = status.get("phase"), pod.get("metadata", {}).get("name")
    if phase == "Running" and not _has_ended(pod):
        return ""
    why = _why_waiting(pod)[0] if phase == "Pending" else _how_ended(pod)
    warnings = _warnings(events) if phase == "Pending" or not _driver(pod) else []
    return " ".join([f"Pod {name} is {phase}: {why}.", *warnings])


def missing_volume(events: Sequence[Mapping[str, Any]]) -> str:
    """Return the volume that a pod has waited for too long to mount; empty if there is none.

    Args:
        events: Of the pod, in any order.
    """
    lasting = [event for event in events if event.get("reason") == _NOT_MOUNTED and not _passes(event)]
    newest = max(lasting, key=_time, default=None)
    if newest is None:
        return ""
    return f"a volume cannot be mounted ({_NOT_MOUNTED}: {str(newest.get('message') or '').strip()})"


def refusal_reason(output: str) -> str:
    """Return why the API server refused a pod, from spark-submit's output; empty if that does not tell."""
    match = _API_MESSAGE.search(output)
    if match is None:
        return ""
    message = (match[1] or match[2]).strip()
    if _QUOTA in message:
        return f"the namespace's quota is full: {message}"
    return f"the API server refused the pod: {message}"


def _why_waiting(pod: Mapping[str, Any]) -> tuple[str, bool]:
    """Return why a pod has not begun, and whether the cluster is preparing it."""
    status = pod.get("status") or {}
    for one in status.get("conditions") or ():
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return f"no node can take it ({one.get('reason')}: {one.get('message')})", False
    waiting = next(_states(pod, "waiting"), {})
    reason, message = waiting.get("reason"), waiting.get("message") or "no message"
    if reason in _NO_IMAGE:
        return f"its image cannot be pulled ({reason}: {message})", False
    if reason in _NOT_MADE:
        return f"its container cannot be made ({reason}: {message})", False
    return f"it is being prepared ({reason or 'not scheduled yet'})", True


def _how_ended(pod: Mapping[str, Any]) -> str:
    status = pod.get("status") or {}
    if status.get("reason") == "Evicted":
        return f"the node evicted it ({status.get('message') or 'no message'})"
    if disrupted := _disrupted_by(status):
        return f"it was disrupted ({disrupted})"
    ended = next(_states(pod, "terminated"), {})
    code = ended.get("exitCode")
    if ended.get("reason") == "OOMKilled":
        return (
            f"its container used more memory than its limit (OOMKilled, exit code {code}): raise "
            "spark.driver.memory or spark.driver.memoryOverhead"
        )
    if code is None:
        return f"{status.get('reason') or 'no reason is given'} ({status.get('message') or 'no message'})"
    if code > _SIGNALLED:
        return f"it was killed by signal {code - _SIGNALLED} (exit code {code}): by whom is not recorded"
    return f"it ended with exit code {code}"


def _disrupted_by(status: Mapping[str, Any]) -> str:
    for one in status.get("conditions") or ():
        if one.get("type") == "DisruptionTarget" and one.get("status") == "True":
            return str(one.get("reason") or "")
    return ""


def _warnings(events: Sequence[Mapping[str, Any]]) -> list[str]:
    bad = [event for event in events if event.get("type") == "Warning" and not _passes(event)]
    newest = sorted(bad, key=_time)[-_SHOWN_EVENTS:]
    return [f"{event.get('reason')}: {str(event.get('message') or '').strip()}" for event in newest]


def _passes(event: Mapping[str, Any]) -> bool:
    """Return whether an event is about a volume that Spark itself is about to make."""
    if event.get("reason") != _NOT_MOUNTED:
        return False
    first, last = (str(event.get(name) or "") for name in ("firstTimestamp", "lastTimestamp"))
    try:
        lasted = datetime.fromisoformat(last) - datetime.fromisoformat(first)
    except (TypeError, ValueError):  # a time is missing
        return True
    return lasted.total_seconds() <= _MOUNT_GRACE_S


def _time(event: Mapping[str, Any]) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")


def _states(pod: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    """Yield the details of a pod's containers in a state, the driver's first."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    for one in sorted(statuses, key=lambda one: one.get("name") != CONTAINER):
        if kind in (one.get("state") or {}):
            yield one["state"][kind]


def _has_ended(pod: Mapping[str, Any]) -> bool:
    """Return whether the driver's container has ended for good, as its node reports; a sidecar may run on."""
    if (pod.get("spec") or {}).get("restartPolicy") != "Never":
        return False
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(one.get("name") == CONTAINER and "terminated" in (one.get("state") or {}) for one in statuses)


def _driver(pod: Mapping[str, Any]) -> bool:
    return any(True for _ in _states(pod, "terminated"))
