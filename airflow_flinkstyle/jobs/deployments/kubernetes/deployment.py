"""Drivers on Kubernetes: each one pod that is never restarted.

The driver's environment, with its secrets, is a Secret beside the pod, to which the pod refers by name.
Callers start the next driver, as everywhere; a pod's name is made of its claim and its number, so that the
API server itself refuses a second one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlencode

from airflow_flinkstyle.jobs.deployments.base import (
    CLAIM,
    OF_ANOTHER,
    DriverPages,
    DriverPending,
    DriverState,
    Gone,
    Unknown,
)
from airflow_flinkstyle.jobs.deployments.kubernetes.api import KubernetesApi, RefusedError
from airflow_flinkstyle.jobs.deployments.kubernetes.driver import (
    CLAIM_LABEL,
    SECRETS,
    claim_of,
    is_of_claim,
    let_own,
    pod_name,
    put_secret,
    wrong,
)
from airflow_flinkstyle.jobs.deployments.kubernetes.makers import SparkApplications, SparkSubmit
from airflow_flinkstyle.jobs.deployments.kubernetes.pods import (
    CONTAINER,
    describe_pod,
    missing_volume,
    state_of,
)
from airflow_flinkstyle.jobs.deployments.refusals import why_final
from airflow_flinkstyle.jobs.deployments.rest import NoAnswerError, NotDeliveredError, StateCache
from airflow_flinkstyle.jobs.deployments.room import of_quotas
from airflow_flinkstyle.jobs.errors import DriverFailedError
from airflow_flinkstyle.jobs.packing import DriverAgent, HandOver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.deployments.base import Submission
    from airflow_flinkstyle.jobs.deployments.kubernetes.makers import Maker
    from airflow_flinkstyle.jobs.deployments.room import Room
    from airflow_flinkstyle.protocol.records import IncarnationRecord

_IMAGES: Final = ("spark.kubernetes.container.image", "spark.kubernetes.driver.container.image")
_END_GRACE_S = 1
"""Not 0, or the API server would forget a pod before its node has ended it."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes:
    """A pod of Kubernetes is the driver."""

    how: ClassVar = HandOver(deploy_mode="cluster", submit_mode="cluster", in_image=True)

    agent: DriverAgent = field(default_factory=DriverAgent)
    kube_config: str | None = None
    """Path of a kubeconfig, or ``in-cluster``; None: KUBECONFIG, ~/.kube/config or the pod's own account."""
    spark_operator: str = ""
    """What makes pods: ``kubeflow`` or ``apache``, whose operator takes a ``SparkApplication``; empty for
    ``spark-submit``, which runs here."""
    application: Mapping[str, Any] = field(default_factory=dict)
    """More fields of a ``SparkApplication``'s ``spec``, such as templates of pods; no secrets. They override
    none that this package sets."""
    page_url: str | None = None
    """URL of a page about a driver's pod, with ``{namespace}`` and ``{pod}`` in it; None if there is none."""
    ui_url: str | None = None
    """The same for Spark's own pages."""


class KubernetesDeployment:
    """A driver is one pod, whose name is made of its claim."""

    binds_claims = True

    def __init__(self, own: Kubernetes, *, master: str, conf: Mapping[str, str]) -> None:
        """Prepare.

        Args:
            own: The login, and what makes pods.
            master: The API server: ``k8s://https://host:port``.
            conf: Spark's settings: the namespace and the image.
        """
        self._own, self._conf = own, conf
        self._api = KubernetesApi(master=master, conf=conf, kube_config=own.kube_config)
        self._maker: Maker = (
            SparkApplications(own.spark_operator, own.application, self._api)
            if own.spark_operator
            else SparkSubmit(own.kube_config, self._api)
        )
        self.name = self._maker.name
        self._states = StateCache()

    def require_able(self) -> None:
        """Refuse what neither the API server nor a node would take; drivers end with nothing of this host.

        Raises:
            BadInputError: If there is no image, no place of the agent, or no login that may read pods.
            ClusterLoginError: If the login cannot be used at the moment.
        """
        if not any(self._conf.get(name) for name in _IMAGES):
            raise wrong(
                f"An image for driver and executors was expected ({_IMAGES[0]}), found none.",
                "Set it in conf of the Spark connection's extra.",
            )
        self._own.agent.require_place("Kubernetes", "put both files into the image or at an address")
        self._api.log_in()
        try:
            self._api.ask(f"{self._api.path('pods')}?limit=1")
            self._maker.require_able()
        except (NotDeliveredError, NoAnswerError) as error:
            # A server that is busy, or is being upgraded, refuses everything for a while (429, 500, 503).
            if isinstance(error, RefusedError) and why_final(str(error), error.code):
                raise wrong(
                    f"An account that may use pods of namespace {self._api.namespace} was expected, found "
                    f"that {self._api.url} answers: {error}.",
                    "Give it the role of docs/deployments.md.",
                ) from error
            log.warning("The API server does not answer yet: %s", error)

    def submit(self, submission: Submission) -> Mapping[str, str]:
        """Have the driver's pod made; return once the API server has the pod, or the resource that makes it.

        Raises:
            DriverFailedError: If there is none.
        """
        pod = pod_name(submission)
        try:
            secret = put_secret(self._api, pod, submission)
            owner = self._maker.make(submission, pod)
        except DriverFailedError:  # also if a Secret was written and its answer was lost
            self._delete(SECRETS, pod)
            raise
        if owner is not None:
            let_own(self._api, secret, owner)
            log.info("Submitted driver pod %s of namespace %s", pod, self._api.namespace)
        return {"pod": pod}

    def find(self, submission: Submission) -> Mapping[str, str] | None:
        """Look for a living pod with the label of the submission's claim, or one that is still to be made."""
        selector = f"{CLAIM_LABEL}={claim_of(submission)}"
        query = urlencode({"labelSelector": f"{selector},spark-role=driver"})
        try:
            pods = self._api.ask(f"{self._api.path('pods')}?{query}").get("items") or []
            living = [pod["metadata"] for pod in pods if not isinstance(state_of(pod), Gone)]
            newest = max(living, key=lambda pod: str(pod["creationTimestamp"]), default=None)
            name = self._maker.find(selector) if newest is None else str(newest["name"])
        except (NotDeliveredError, NoAnswerError):
            return None
        return None if name is None else {"pod": name}

    def native_id(self, record: IncarnationRecord) -> Mapping[str, str]:
        """Return the pod that the driver recorded."""
        return {"pod": record.cluster_id, "said_by": "driver"}

    def state(self, native_id: Mapping[str, str]) -> DriverState:
        """Return the pod's state as the API server reports it."""
        pod = native_id.get("pod", "")
        if not pod:
            return Unknown("it has no pod")
        if not is_of_claim(pod, native_id.get(CLAIM)):
            return Unknown(OF_ANOTHER)
        return self._states.state(pod, lambda: self._query_state(pod))

    def end(self, native_id: Mapping[str, str]) -> DriverState:
        """Delete the pod, and wait until it has ended; only one of the claim that a caller submitted."""
        pod, state = native_id.get("pod", ""), self.state(native_id)
        if isinstance(state, Gone) or not is_of_claim(pod, native_id.get(CLAIM)):
            return state
        if native_id.get("said_by"):
            return Unknown("only a driver that a caller submitted is killed")
        self._delete("pods", f"{pod}?gracePeriodSeconds={_END_GRACE_S}")
        self._maker.withdraw(pod)
        self._delete(SECRETS, pod)  # it has no owner if it was unknown whether there would be a pod
        return self._states.until_ended(pod, lambda: self.state(native_id))

    def log_tail(self, native_id: Mapping[str, str], *, lines: int = 30) -> str:
        """Return why the pod does not run, or how it ended, and the end of its log."""
        pod = native_id.get("pod", "")
        if not pod:
            return ""
        if not is_of_claim(pod, native_id.get(CLAIM)):
            return f"(not shown: {OF_ANOTHER})"
        try:
            record = self._api.get(self._api.pod(pod))
            if record is None:
                return self._maker.why_no_pod(pod)
            events = self._events(pod)
            gave_up = self._maker.gave_up(pod) if isinstance(state_of(record), DriverPending) else ""
        except (NotDeliveredError, NoAnswerError) as error:
            return f"(not readable from here: {error})"
        return "\n".join(filter(None, (gave_up, describe_pod(record, events), self._log(pod, record, lines))))

    def room(self) -> Room | None:
        """Return what the namespace's quotas leave; None if they may not be read, or limit nothing."""
        try:
            quotas = self._api.ask(self._api.path("resourcequotas")).get("items") or []
        except (NotDeliveredError, NoAnswerError) as error:
            log.info("The namespace's quotas cannot be read: %s", error)
            return None
        return of_quotas(quotas, self._api.namespace)

    def pages(self, native_id: Mapping[str, str]) -> DriverPages:
        """Return the pages that the connection names: Kubernetes has none, and Spark's are inside of it."""
        pod = native_id.get("pod", "")
        named = (self._own.page_url, self._own.ui_url)
        cluster, spark_ui = (
            (place or "").replace("{namespace}", self._api.namespace).replace("{pod}", pod) for place in named
        )
        return DriverPages(cluster=cluster, spark_ui=spark_ui) if pod else DriverPages()

    def _log(self, pod: str, record: Mapping[str, Any], lines: int) -> str:
        containers = [one["name"] for one in (record.get("spec") or {}).get("containers") or ()]
        if not containers:
            return ""
        container = CONTAINER if CONTAINER in containers else containers[0]
        query = urlencode({"container": container, "tailLines": lines})
        try:
            return self._api.text(f"{self._api.pod(pod)}/log?{query}").strip()
        except (NotDeliveredError, NoAnswerError) as error:
            log.info("There is no log yet: %s", error)
            return ""

    def _query_state(self, pod: str) -> DriverState:
        try:
            record = self._api.get(self._api.pod(pod))
            return self._maker.without_pod(pod) if record is None else self._state_of(pod, record)
        except (NotDeliveredError, NoAnswerError) as error:
            return Unknown(str(error))

    def _state_of(self, pod: str, record: Mapping[str, Any]) -> DriverState:
        state = state_of(record)
        if not isinstance(state, DriverPending) or not state.may_pass:
            return state
        why = self._maker.gave_up(pod) or self._missing_volume(pod)
        return DriverPending(why) if why else state

    def _missing_volume(self, pod: str) -> str:
        try:
            return missing_volume(self._events(pod))
        except (NotDeliveredError, NoAnswerError) as error:  # the account may not read events
            log.debug("Events of pod %s cannot be read: %s", pod, error)
            return ""

    def _events(self, pod: str) -> list[Mapping[str, Any]]:
        query = urlencode({"fieldSelector": f"involvedObject.name={pod}"})
        return self._api.ask(f"{self._api.path('events')}?{query}").get("items") or []

    def _delete(self, kind: str, name: str) -> None:
        name, _, query = name.partition("?")
        try:
            self._api.ask(f"{self._api.path(kind, name)}?{query}", method="DELETE")
        except (NotDeliveredError, NoAnswerError) as error:
            log.info("%s %s is not deleted: %s", kind, name, error)
