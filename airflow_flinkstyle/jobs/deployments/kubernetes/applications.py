"""Pods made by an operator of the cluster from a ``SparkApplication``: this side needs no Java, no Spark."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from airflow_flinkstyle.jobs.deployments.base import DriverPending, DriverState, Unknown
from airflow_flinkstyle.jobs.deployments.kubernetes.api import CONFLICT, RefusedError
from airflow_flinkstyle.jobs.deployments.kubernetes.driver import failed, wrong
from airflow_flinkstyle.jobs.deployments.kubernetes.pods import NO_POD
from airflow_flinkstyle.jobs.deployments.kubernetes.resources import RESOURCES, with_more, words_of
from airflow_flinkstyle.jobs.deployments.rest import NoAnswerError, NotDeliveredError

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.deployments.kubernetes.api import KubernetesApi
    from airflow_flinkstyle.jobs.spec import Submission
    from airflow_flinkstyle.jobs.target import SubmitTarget

_KIND: Final = "sparkapplications"
log = logging.getLogger(__name__)


class SparkApplications:
    """Makes a pod by a resource of the same name, which owns it."""

    name = "spark-application"

    def __init__(self, target: SubmitTarget, api: KubernetesApi) -> None:
        """Prepare.

        Raises:
            BadInputError: If no operator of that name is known.
        """
        if target.spark_operator not in RESOURCES:
            raise wrong(
                f"A Spark operator {' or '.join(map(repr, RESOURCES))} was expected, found "
                f"{target.spark_operator!r}.",
                "Correct 'spark-operator' in the Spark connection's extra.",
            )
        self._resource, self._api = RESOURCES[target.spark_operator], api
        self._more = target.application

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
                if error.code != CONFLICT:
                    raise failed(f"{self._api.url} says: {error}.", status=error.code) from error
                return self._api.get(self._path(pod))  # the same submit was tried before
        except NotDeliveredError as error:
            raise failed(f"{error}.") from error
        except NoAnswerError as error:
            log.warning("Whether SparkApplication %s was created is unknown: %s", pod, error)
            return None

    def find(self, selector: str) -> str | None:
        """Return the newest application of these labels whose pod its operator has not made yet."""
        query = urlencode({"labelSelector": selector})
        found = self._api.ask(f"{self._path()}?{query}").get("items") or []
        to_come = [one for one in found if isinstance(self._resource.without_pod(one), DriverPending)]
        newest = max(to_come, key=lambda one: str(one["metadata"]["creationTimestamp"]), default=None)
        return None if newest is None else str(newest["metadata"]["name"])

    def without_pod(self, pod: str) -> DriverState:
        """Return what the operator says of the application."""
        application = self._api.get(self._path(pod))
        if application is None:
            return Unknown("the API server knows no such pod, and no SparkApplication of that name")
        return self._resource.without_pod(application)

    def gave_up(self, pod: str) -> str:
        """Return what the operator says of an application whose pod it made and could not complete."""
        try:
            application = self._api.get(self._path(pod))
        except (NotDeliveredError, NoAnswerError) as error:
            log.info("What the operator says of %s cannot be read: %s", pod, error)
            return ""
        return words_of(application) if application and self._resource.gave_up(application) else ""

    def words_without_pod(self, pod: str) -> str:
        """Return why the operator made no pod."""
        application = self._api.get(self._path(pod))
        return NO_POD if application is None else words_of(application)

    def withdraw(self, pod: str) -> None:
        """Delete the application: its operator may not have made the pod yet."""
        try:
            self._api.ask(self._path(pod), method="DELETE")
        except (NotDeliveredError, NoAnswerError) as error:
            log.info("SparkApplication %s is not deleted: %s", pod, error)

    def _path(self, name: str = "") -> str:
        return self._api.path(_KIND, name, of=f"{self._resource.group}/{self._resource.version}")
