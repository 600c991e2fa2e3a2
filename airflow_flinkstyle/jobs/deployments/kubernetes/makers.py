"""What a driver's pod is made by: ``spark-submit`` here, or an operator of the cluster."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlencode

from airflow_flinkstyle.jobs.deployments import spark_submit
from airflow_flinkstyle.jobs.deployments.base import DriverPending, DriverState, Unknown
from airflow_flinkstyle.jobs.deployments.kubernetes.api import CONFLICT, IN_CLUSTER, RefusedError
from airflow_flinkstyle.jobs.deployments.kubernetes.driver import failed, settings, wrong
from airflow_flinkstyle.jobs.deployments.kubernetes.pods import NO_POD, refusal_reason
from airflow_flinkstyle.jobs.deployments.kubernetes.resources import (
    RESOURCES,
    describe_application,
    with_more,
)
from airflow_flinkstyle.jobs.deployments.rest import NoAnswerError, NotDeliveredError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.deployments.base import Submission
    from airflow_flinkstyle.jobs.deployments.kubernetes.api import KubernetesApi

_WAIT_FOR_END: Final = "spark.kubernetes.submission.waitAppCompletion"
_WITHDRAWN_S, _POLL_S = 120.0, 0.5
"""How long a pod that Spark deletes again may take to end; its grace period is 30 s."""
_KIND: Final = "sparkapplications"
_MAY_BE_THERE: Final = (CONFLICT, 500, 504)
"""Statuses of a POST whose object may exist: it was sent before, or the API server lost etcd's answer."""
log = logging.getLogger(__name__)


class Maker(Protocol):
    """Makes pods of drivers, by the names that they are given."""

    name: str
    """Name of the deployment; it shows how its pods are made, and so what to ask about a missing one."""

    def require_able(self) -> None:
        """Refuse a set-up that could make no pod; raises ``BadInputError``."""

    def make(self, submission: Submission, pod: str) -> Mapping[str, Any] | None:
        """Have the pod made, and return at once with the object that owns the driver's Secret.

        None if it is unknown whether there will be a pod; raises ``DriverFailedError`` if there is none.
        """

    def find(self, selector: str) -> str | None:
        """Return the name of a pod that is still to be made; raises as ``KubernetesApi.ask``."""

    def without_pod(self, pod: str) -> DriverState:
        """Return the state of a driver whose pod the API server does not know."""

    def gave_up(self, pod: str) -> str:
        """Return why a pod that waits will never begin; empty if it may, or that is unknown."""

    def why_no_pod(self, pod: str) -> str:
        """Return why there is no pod, in words."""

    def withdraw(self, pod: str) -> None:
        """Let no pod of that name be made any more."""


class SparkSubmit:
    """Makes a pod with Spark's own command, which runs here: the worker needs Java and Spark."""

    name = "kubernetes"

    def __init__(self, kube_config: str | None, api: KubernetesApi) -> None:
        self._kube_config, self._api = kube_config, api

    def require_able(self) -> None:
        """Refuse nothing: a missing Spark is reported when its command is run."""

    def make(self, submission: Submission, pod: str) -> dict[str, Any] | None:
        """Run ``spark-submit``, and return the pod once the API server has it; None if it does not answer.

        Raises:
            DriverFailedError: If there is none.
        """
        output, code = self._run(submission, pod)
        tail = spark_submit.end_of(output, submission)
        try:
            found = self._api.get(self._api.pod(pod))
            if found is not None and code and "deletionTimestamp" in found["metadata"]:
                found = self._once_withdrawn(pod)
        except (NotDeliveredError, NoAnswerError) as error:
            log.warning(
                "Whether a driver was submitted is unknown: %s; spark-submit printed: %s", error, tail
            )
            return None
        if found is None:
            reason = refusal_reason(output) or f"spark-submit ended with exit code {code}:\n{tail}\n"
            raise failed(reason, output=output)
        return {"apiVersion": "v1", "kind": "Pod", **found}

    def find(self, selector: str) -> str | None:
        """Return None: when ``spark-submit`` has ended, the pod is there or will never be."""
        return None

    def without_pod(self, pod: str) -> DriverState:
        """Return Unknown: the pod may have been removed by force while its process runs."""
        return Unknown("the API server knows no such pod")

    def gave_up(self, pod: str) -> str:
        """Return nothing: Spark deletes a pod that it cannot complete."""
        return ""

    def why_no_pod(self, pod: str) -> str:
        """Return that there is no such pod."""
        return NO_POD

    def withdraw(self, pod: str) -> None:
        """Do nothing: the command that makes the pod has ended."""

    def _run(self, submission: Submission, pod: str) -> tuple[str, int]:
        """Run ``spark-submit``; returns its output, and its exit code."""
        place = "/dev/null" if self._kube_config == IN_CLUSTER else self._kube_config
        try:
            return spark_submit.run(
                _command(submission, pod), submission, {"KUBECONFIG": place} if place else None
            )
        except OSError as error:
            return f"{submission.argv[0]} could not be run: {error}", 1

    def _once_withdrawn(self, pod: str) -> dict[str, Any] | None:
        """Wait for the end of a pod that ``spark-submit`` has deleted; return the pod if it stays."""
        deadline = time.monotonic() + _WITHDRAWN_S
        while (found := self._api.get(self._api.pod(pod))) is not None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return found


class SparkApplications:
    """Makes a pod by a resource of the same name, which owns it: this side needs neither Java nor Spark."""

    name = "spark-application"

    def __init__(self, operator: str, more: Mapping[str, Any], api: KubernetesApi) -> None:
        """Prepare.

        Args:
            operator: Its name.
            more: More fields of the application's ``spec``.
            api: Of the cluster.

        Raises:
            BadInputError: If no operator of that name is known.
        """
        if operator not in RESOURCES:
            raise wrong(
                f"A Spark operator {' or '.join(map(repr, RESOURCES))} was expected, found {operator!r}.",
                "Correct 'spark-operator' in the Spark connection's extra.",
            )
        self._resource, self._more, self._api = RESOURCES[operator], more, api

    def require_able(self) -> None:
        """Refuse a cluster without the operator's resources, and an account that may not use them.

        Raises:
            BadInputError: If they are not there.
            RefusedError: If they may not be used.
        """
        path = f"{self._path()}?limit=1"
        if self._api.get(path) is None:
            raise wrong(
                f"Resources {_KIND}.{self._resource.group} of version {self._resource.version} were expected "
                f"at {self._api.url}, found none.",
                "Install the operator, or take 'spark-operator' out of the Spark connection's extra.",
            )

    def make(self, submission: Submission, pod: str) -> dict[str, Any] | None:
        """Create the application, and return it; None if it is unknown whether it was created.

        Raises:
            DriverFailedError: If it was not.
        """
        try:
            try:
                return self._api.ask(
                    self._path(),
                    method="POST",
                    body=with_more(self._resource.body(submission, pod), self._more),
                )
            except RefusedError as error:
                made = self._api.get(self._path(pod)) if error.code in _MAY_BE_THERE else None
                if made is None:
                    raise failed(f"{self._api.url} answers: {error}.", status=error.code) from error
                return made
        except NotDeliveredError as error:
            raise failed(f"{error}.") from error
        except NoAnswerError as error:
            log.warning("Whether SparkApplication %s was created is unknown: %s", pod, error)
            return None

    def find(self, selector: str) -> str | None:
        """Return the newest application of these labels whose pod its operator has not made yet."""
        query = urlencode({"labelSelector": selector})
        applications = self._api.ask(f"{self._path()}?{query}").get("items") or []
        pending = [one for one in applications if isinstance(self._resource.without_pod(one), DriverPending)]
        newest = max(pending, key=lambda one: str(one["metadata"]["creationTimestamp"]), default=None)
        return None if newest is None else str(newest["metadata"]["name"])

    def without_pod(self, pod: str) -> DriverState:
        """Return the driver's state as the operator reports it."""
        application = self._api.get(self._path(pod))
        if application is None:
            return Unknown("the API server knows no such pod, and no SparkApplication of that name")
        return self._resource.without_pod(application)

    def gave_up(self, pod: str) -> str:
        """Return the operator's message about an application whose pod it made and could not complete."""
        try:
            application = self._api.get(self._path(pod))
        except (NotDeliveredError, NoAnswerError) as error:
            log.info("The operator's message about %s cannot be read: %s", pod, error)
            return ""
        return (
            describe_application(application) if application and self._resource.gave_up(application) else ""
        )

    def why_no_pod(self, pod: str) -> str:
        """Return why the operator made no pod."""
        application = self._api.get(self._path(pod))
        return NO_POD if application is None else describe_application(application)

    def withdraw(self, pod: str) -> None:
        """Delete the application: its operator may not have made the pod yet."""
        try:
            self._api.ask(self._path(pod), method="DELETE")
        except (NotDeliveredError, NoAnswerError) as error:
            log.info("SparkApplication %s is not deleted: %s", pod, error)

    def _path(self, name: str = "") -> str:
        return self._api.path(_KIND, name, of=f"{self._resource.group}/{self._resource.version}")


def _command(submission: Submission, pod: str) -> list[str]:
    """Return the command line, without secrets; if a setting is given twice, the last counts."""
    conf = {**settings(submission, pod), _WAIT_FOR_END: "false"}
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    program_at = len(submission.argv) - len(submission.program.arguments) - 1
    return [*submission.argv[:program_at], *options, *submission.argv[program_at:]]
