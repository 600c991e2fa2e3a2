"""The ``SparkApplication`` resources of the two Spark operators: their content and their status. Pure.

Both make the driver's pod with Spark's own code from Spark's own settings. So nearly all is in
``sparkConf``, as on a command line. Apache's adds settings where none are given
(``spark.authenticate``, ``spark.io.encryption.enabled``, ``spark.kubernetes.executor.useDriverPodIP``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol

from airflow_flinkstyle.jobs.deployments.base import DriverPending, DriverState, Gone, Unknown
from airflow_flinkstyle.jobs.deployments.kubernetes.api import CONTEXT, NAMESPACE, SUBMISSION
from airflow_flinkstyle.jobs.deployments.kubernetes.driver import labels, settings
from airflow_flinkstyle.jobs.deployments.kubernetes.pods import refusal_reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.deployments.base import Submission

_SPARK_VERSION: Final = "4"
"""Required; Kubeflow's operator asks only whether it is 3 or newer, Apache's writes it into a label."""
_NEVER_MS: Final = 10 * 365 * 24 * 3600 * 1000
_PYTHON_RUNNER: Final = "org.apache.spark.deploy.PythonRunner"
"""With it, Apache's operator takes the first Python file as the script."""
_IMAGE: Final = "spark.kubernetes.container.image"


class Resource(Protocol):
    """One operator's ``SparkApplication``."""

    group: str
    version: str

    def body(self, submission: Submission, name: str) -> dict[str, Any]:
        """Return the resource that makes a driver's pod of the same name."""

    def without_pod(self, application: Mapping[str, Any]) -> DriverState:
        """Return what the operator's status means while the API server knows no pod of it."""

    def gave_up(self, application: Mapping[str, Any]) -> bool:
        """Return whether the operator has made a pod that will never begin, and left it there."""


class Kubeflow:
    """``sparkoperator.k8s.io/v1beta2``, of Kubeflow's operator."""

    group, version = "sparkoperator.k8s.io", "v1beta2"

    def body(self, submission: Submission, name: str) -> dict[str, Any]:
        """Return the resource; the operator never restarts it."""
        program, conf = submission.program, _conf(submission, name)
        deps = {"jars": program.jars, "pyFiles": program.py_files, "packages": program.packages}
        spec = {
            "type": "Python",
            "mode": "cluster",
            "sparkVersion": f"{_SPARK_VERSION}.0.0",
            "image": conf.get(_IMAGE),
            "mainApplicationFile": program.application,
            "arguments": list(program.arguments),
            "sparkConf": conf,
            "deps": {kind: list(files) for kind, files in deps.items() if files},
            "driver": {"podName": name},
            "executor": {},
            "restartPolicy": {"type": "Never"},
        }
        return _resource(self, submission, name, spec)

    def without_pod(self, application: Mapping[str, Any]) -> DriverState:
        """Return Gone only if the operator's ``spark-submit`` failed: then there was no pod."""
        status = application.get("status") or {}
        latest = status.get("applicationState") or {}
        state, message = str(latest.get("state") or ""), str(latest.get("errorMessage") or "")
        if not state:
            return DriverPending(_NOT_SEEN)
        if state == "SUBMITTED":
            return DriverPending("its operator has submitted it", may_pass=True)
        never_submitted = not status.get("executionAttempts")
        if state in ("SUBMISSION_FAILED", "FAILED") and never_submitted and "already exist" not in message:
            return Gone()
        return Unknown(f"its SparkApplication is {state} ({message}), and it has no pod")

    def gave_up(self, application: Mapping[str, Any]) -> bool:
        """Return False: its ``spark-submit`` deletes a pod that it cannot complete."""
        return False


class Apache:
    """``spark.apache.org/v1``, of the Apache Spark project's operator since its version 0.6.0."""

    group, version = "spark.apache.org", "v1"

    def body(self, submission: Submission, name: str) -> dict[str, Any]:
        """Return the resource; the operator neither restarts it, nor gives it up, nor deletes its pod."""
        program = submission.program
        conf = _conf(submission, name)
        if program.jars:
            conf["spark.jars"] = ",".join(program.jars)
        if program.packages:
            conf["spark.jars.packages"] = ",".join(program.packages)
        timeouts = ("driverStartTimeoutMillis", "driverReadyTimeoutMillis", "executorStartTimeoutMillis")
        spec = {
            "runtimeVersions": {"sparkVersion": _SPARK_VERSION},
            "mainClass": _PYTHON_RUNNER,
            "pyFiles": ",".join((program.application, *program.py_files)),
            "driverArgs": list(program.arguments),
            "sparkConf": conf,
            "applicationTolerations": {
                "restartConfig": {"restartPolicy": "Never"},
                "applicationTimeoutConfig": dict.fromkeys(timeouts, _NEVER_MS),
                "resourceRetainPolicy": "Always",
            },
        }
        return _resource(self, submission, name, spec)

    def without_pod(self, application: Mapping[str, Any]) -> DriverState:
        """Return Gone only if the pod itself was refused.

        The operator makes the driver's other objects after the pod, and then reports ``DriverRequested``: a
        pod that is missing then has been removed.
        """
        states = _states(application)
        if not states or states == ["Submitted"]:
            return DriverPending(_NOT_SEEN)
        if self.gave_up(application) and any(
            _NO_POD.search(message or "") for _, message in _apache_history(application)
        ):
            return Gone()
        return Unknown(f"its SparkApplication is {states[-1]}, and it has no pod")

    def gave_up(self, application: Mapping[str, Any]) -> bool:
        """Return whether an object of a driver, its pod first, was refused before the driver began."""
        states = _states(application)
        return "SchedulingFailure" in states and "DriverStarted" not in states


_NOT_SEEN: Final = "no operator has taken up its SparkApplication: none runs, or none watches its namespace"
_NO_POD: Final = re.compile(r"POST at: \S+/pods\. |pods \"[^\"]+\" is forbidden")
"""An API server's refusal of a pod, as Apache's operator reports it."""
_AFTERWARDS: Final = ("TerminatedWithoutReleaseResources", "ResourceReleased")
"""The last states of any application with Apache's operator; the reason is in an earlier state."""
RESOURCES: Final[dict[str, Resource]] = {"kubeflow": Kubeflow(), "apache": Apache()}
"""By the name of the operator, as a Spark connection chooses it."""


def with_more(body: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a resource with more fields in its ``spec``; its own fields win."""
    return {**body, "spec": _merged(body["spec"], more)}


def _merged(own: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return both; where both have a value that is no object, the own one."""
    merged = {**more, **own}
    for name in own.keys() & more.keys():
        if isinstance(own[name], dict) and isinstance(more[name], dict):
            merged[name] = _merged(own[name], more[name])
    return merged


def describe_application(application: Mapping[str, Any]) -> str:
    """Return an application's state, and the reason for it if its operator gives one."""
    latest = (application.get("status") or {}).get("applicationState") or {}
    own = [(latest.get("state"), latest.get("errorMessage"))]
    states = own if latest else _apache_history(application)[::-1]
    state, message = next((one for one in states if _explains(*one)), (states[0][0], ""))
    reason = refusal_reason(message or "") or message or "no message"
    name = application["metadata"]["name"]
    return f"SparkApplication {name} is {state or 'not taken up by an operator'}: {reason}"


def _conf(submission: Submission, name: str) -> dict[str, str]:
    """Return Spark's settings, without those of the login that submits from here."""
    of_submitter = (NAMESPACE, CONTEXT)
    given = {
        setting: value
        for setting, value in submission.program.conf.items()
        if setting not in of_submitter and not setting.startswith(SUBMISSION)
    }
    return {**given, **settings(submission, name)}


def _resource(kind: Resource, submission: Submission, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": f"{kind.group}/{kind.version}",
        "kind": "SparkApplication",
        "metadata": {"name": name, "labels": labels(submission)},
        "spec": spec,
    }


def _explains(state: str | None, text: str | None) -> bool:
    return bool((text or "").strip()) and state not in _AFTERWARDS


def _states(application: Mapping[str, Any]) -> list[str]:
    """Return the states that an application of Apache's has been in, the newest last."""
    return [state for state, _ in _apache_history(application) if state]


def _apache_history(application: Mapping[str, Any]) -> list[tuple[str | None, str | None]]:
    """Return those states, each with its message."""
    status = application.get("status") or {}
    history = status.get("stateTransitionHistory") or {}
    states = [history[number] for number in sorted(history, key=int)] or [status.get("currentState") or {}]
    return [(one.get("currentStateSummary"), one.get("message")) for one in states]
