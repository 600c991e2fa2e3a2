"""Drivers on Kubernetes: submitted by ``spark-submit`` in cluster mode, each one pod that is never restarted.

The driver's environment, with all that is secret in it, is a Secret beside the pod, which names it by
reference. Callers start the next driver, as everywhere; a pod's name is made of its claim and its number, so
that the API server itself refuses a second one.
"""

from __future__ import annotations

import base64
import logging
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.base import DriverState, Gone, Unknown
from airflow_flinkstyle.jobs.deployments.kubernetes_api import (
    IN_CLUSTER,
    KubernetesApi,
    RefusedError,
)
from airflow_flinkstyle.jobs.deployments.pods import CONTAINER, refusal_words, state_of, words_of
from airflow_flinkstyle.jobs.deployments.rest import NoAnswerError, NotDeliveredError, Remembered
from airflow_flinkstyle.jobs.errors import DriverFailedError
from airflow_flinkstyle.jobs.target import PY_FILES
from airflow_flinkstyle.kafka.login.driver import scrub

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.spec import Submission
    from airflow_flinkstyle.jobs.target import SubmitTarget
    from airflow_flinkstyle.protocol.records import IncarnationRecord

CLAIM_LABEL: Final = "airflow-flinkstyle/claim"
_IMAGES: Final = ("spark.kubernetes.container.image", "spark.kubernetes.driver.container.image")
_PYTHONS: Final = {
    "PYSPARK_PYTHON": "spark.pyspark.python",
    "PYSPARK_DRIVER_PYTHON": "spark.pyspark.driver.python",
}
"""Spark writes them into a pod by itself, from these settings."""
_PREFIX: Final = "flinkstyle-"
_NAME_CHARACTERS: Final = 24
_CONFLICT: Final = 409
_SUBMIT_TIMEOUT_S = 600.0
_SHOWN_LINES = 15
_WITHDRAWN_S, _LOOK_S = 120.0, 0.5
"""How long a pod may take to end that Spark deletes again; its grace period is 30 s."""
_END_GRACE_S = 1
"""Not 0: then the API server forgets a pod before its node has ended it."""
log = logging.getLogger(__name__)


class KubernetesDeployment:
    """A driver is one pod."""

    name = "kubernetes"

    def __init__(self, target: SubmitTarget) -> None:
        """Prepare; ``target.kube_config`` names the login for this package and for ``spark-submit``."""
        self._target, self._api = target, KubernetesApi(target)
        self._remembered = Remembered()

    def require_able(self) -> None:
        """Refuse what the API server, or no node, could take; drivers end with nothing of this host.

        Raises:
            BadInputError: If there is no image, no way for the agent, or no login that may look at pods.
        """
        if not any(self._target.conf.get(name) for name in _IMAGES):
            raise _wrong(
                f"An image for driver and executors was expected ({_IMAGES[0]}), found none.",
                "Set it in conf of the Spark connection's extra.",
            )
        if self._target.agent == PY_FILES and not self._target.agent_path:
            raise _wrong(
                "The place of the agent's zip was expected with agent 'py-files' on Kubernetes, found none: "
                "nothing of this machine is uploaded there.",
                "Run `flinkstyle agent pack FOLDER`, put both files into the image or at an address, and "
                "name the zip as 'agent-path' in the Spark connection's extra.",
            )
        self._api.login()
        try:
            self._api.ask(f"{self._api.path('pods')}?limit=1")
        except RefusedError as error:
            raise _wrong(
                f"An account that may use pods of namespace {self._api.namespace} was expected, found that "
                f"{self._api.url} says: {error}.",
                "Give it the role of docs/deployments.md.",
            ) from error
        except (NotDeliveredError, NoAnswerError) as error:
            log.warning("The API server does not answer yet: %s", error)

    def submit(self, submission: Submission) -> Mapping[str, str]:
        """Let ``spark-submit`` make the driver's pod, and return once the API server has it.

        Raises:
            DriverFailedError: If there is none.
        """
        pod = _pod_name(submission)
        secret = self._put_secret(pod, submission)
        said, code = self._run(submission, pod)
        tail = "\n".join(scrub(said, submission.env).splitlines()[-_SHOWN_LINES:])
        try:
            found = self._api.get(self._api.pod(pod))
            if found is not None and code and "deletionTimestamp" in found["metadata"]:
                found = self._once_withdrawn(pod)
        except (NotDeliveredError, NoAnswerError) as error:
            log.warning("Whether a driver was submitted is unknown: %s; spark-submit said: %s", error, tail)
            return {"pod": pod}
        if found is None:
            self._delete("secrets", pod)
            raise _failed(refusal_words(said) or f"spark-submit ended with exit code {code}:\n{tail}\n")
        self._let_pod_own(secret, found)
        log.info("Submitted driver pod %s of namespace %s", pod, self._api.namespace)
        return {"pod": pod}

    def find(self, submission: Submission) -> Mapping[str, str] | None:
        """Look for a living pod with the label of the submission's claim."""
        query = urlencode({"labelSelector": f"{CLAIM_LABEL}={_claim(submission)},spark-role=driver"})
        try:
            pods = self._api.ask(f"{self._api.path('pods')}?{query}").get("items") or []
        except (NotDeliveredError, NoAnswerError):
            return None
        living = [pod for pod in pods if not isinstance(state_of(pod), Gone)]
        newest = max(living, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)
        return None if newest is None else {"pod": str(newest["metadata"]["name"])}

    def native_id(self, record: IncarnationRecord) -> Mapping[str, str]:
        """Return the pod that the driver says it is in."""
        return {"pod": record.cluster_id, "said_by": "driver"}

    def state(self, native_id: Mapping[str, str]) -> DriverState:
        """Return what the API server says of the pod."""
        pod = native_id.get("pod", "")
        return self._remembered.state(pod, lambda: self._look(pod)) if pod else Unknown("it has no pod")

    def end(self, native_id: Mapping[str, str]) -> DriverState:
        """Delete the pod, and wait until it has ended; only one that a caller submitted."""
        pod, state = native_id.get("pod", ""), self.state(native_id)
        if not pod or isinstance(state, Gone):
            return state
        if native_id.get("said_by") or not pod.startswith(_PREFIX):
            return Unknown("only a driver that a caller submitted is killed")
        self._delete("pods", f"{pod}?gracePeriodSeconds={_END_GRACE_S}")
        return self._remembered.until_ended(pod, lambda: self.state(native_id))

    def log_tail(self, native_id: Mapping[str, str], *, lines: int = 30) -> str:
        """Return why the pod does not run, or how it ended, and the end of its log."""
        pod = native_id.get("pod", "")
        if not pod:
            return ""
        query = urlencode({"fieldSelector": f"involvedObject.name={pod}"})
        try:
            record = self._api.get(self._api.pod(pod))
            events = self._api.ask(f"{self._api.path('events')}?{query}").get("items") or []
        except (NotDeliveredError, NoAnswerError) as error:
            return f"(not readable from here: {error})"
        return "\n".join(filter(None, (words_of(record, events), self._log(pod, record, lines))))

    def page(self, native_id: Mapping[str, str]) -> str | None:
        """Return no address: Kubernetes has no page of its own."""
        return None

    def _log(self, pod: str, record: Mapping[str, Any] | None, lines: int) -> str:
        containers = [one["name"] for one in ((record or {}).get("spec") or {}).get("containers") or ()]
        if not containers:
            return ""
        container = CONTAINER if CONTAINER in containers else containers[0]
        query = urlencode({"container": container, "tailLines": lines})
        try:
            return self._api.text(f"{self._api.pod(pod)}/log?{query}").strip()
        except (NotDeliveredError, NoAnswerError) as error:
            log.info("There is no log yet: %s", error)
            return ""

    def _look(self, pod: str) -> DriverState:
        try:
            return state_of(self._api.get(self._api.pod(pod)))
        except (NotDeliveredError, NoAnswerError) as error:
            return Unknown(str(error))

    def _run(self, submission: Submission, pod: str) -> tuple[str, int]:
        """Run ``spark-submit``; returns what it said, and its exit code."""
        env = dict(submission.submitter_env)
        if self._target.kube_config:
            env["KUBECONFIG"] = (
                "/dev/null" if self._target.kube_config == IN_CLUSTER else self._target.kube_config
            )
        try:
            done = subprocess.run(  # noqa: S603 - argv is built by submit_argv, no shell
                _command(submission, pod),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=env,
                cwd=submission.cwd,
                timeout=_SUBMIT_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return f"spark-submit did not end within {_SUBMIT_TIMEOUT_S:g} s", 1
        except OSError as error:
            return f"{submission.argv[0]} could not be run: {error}", 1
        return done.stdout, done.returncode

    def _once_withdrawn(self, pod: str) -> dict[str, Any] | None:
        """Return a pod that ``spark-submit`` has taken back; None once its node has ended it."""
        deadline = time.monotonic() + _WITHDRAWN_S
        while (found := self._api.get(self._api.pod(pod))) is not None and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        return found

    def _put_secret(self, name: str, submission: Submission) -> dict[str, Any]:
        """Write the driver's environment where its pod takes it from; returns the object."""
        data = {
            key: base64.b64encode(value.encode()).decode() for key, value in _environment(submission).items()
        }
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": {CLAIM_LABEL: _claim(submission)}},
            "data": data,
        }
        try:
            try:
                return self._api.ask(self._api.path("secrets"), method="POST", body=secret)
            except RefusedError as error:
                if error.code != _CONFLICT:  # the same submit was tried before
                    raise
                return self._api.ask(self._api.path("secrets", name), method="PUT", body=secret)
        except (NotDeliveredError, NoAnswerError) as error:
            raise _failed(f"its environment could not be written to Secret {name}: {error}") from error

    def _let_pod_own(self, secret: dict[str, Any], pod: Mapping[str, Any]) -> None:
        """Let Kubernetes delete the Secret with the pod."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        owned = {**secret, "metadata": {**secret["metadata"], "ownerReferences": [owner]}}
        try:
            self._api.ask(self._api.path("secrets", name), method="PUT", body=owned)
        except (NotDeliveredError, NoAnswerError) as error:
            log.warning("Secret %s stays when its pod is deleted: %s", name, error)

    def _delete(self, kind: str, name: str) -> None:
        name, _, query = name.partition("?")
        try:
            self._api.ask(f"{self._api.path(kind, name)}?{query}", method="DELETE")
        except (NotDeliveredError, NoAnswerError) as error:
            log.info("%s %s is not deleted: %s", kind, name, error)


def _command(submission: Submission, pod: str) -> list[str]:
    """Return the command line, on which nothing is secret."""
    label, settings = _claim(submission), {}
    for role in ("driver", "executor"):
        settings[f"spark.kubernetes.{role}.label.{CLAIM_LABEL}"] = label
    for name in _environment(submission):
        settings[f"spark.kubernetes.driver.secretKeyRef.{name}"] = f"{pod}:{name}"
    for variable, name in _PYTHONS.items():
        if variable in submission.env and name not in submission.conf:
            settings[name] = submission.env[variable]
    settings["spark.kubernetes.driver.pod.name"] = pod
    settings["spark.kubernetes.submission.waitAppCompletion"] = "false"
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    program, *rest = submission.argv
    return [program, *options, *rest]


def _environment(submission: Submission) -> dict[str, str]:
    return {name: value for name, value in submission.env.items() if name not in _PYTHONS}


def _claim(submission: Submission) -> str:
    return submission.marker[submission.marker.index("--claim") + 1]


def _pod_name(submission: Submission) -> str:
    """Return the pod's name: one for each driver that a caller asks for."""
    number = submission.argv[submission.argv.index("--submit") + 1]
    return f"{_PREFIX}{_claim(submission)[:_NAME_CHARACTERS].lower()}-{number}"


def _wrong(problem: str, remedy: str) -> BadInputError:
    return BadInputError(problem, state_after="Nothing was started or changed.", remedy=remedy)


def _failed(found: str) -> DriverFailedError:
    return DriverFailedError(
        f"Kubernetes was expected to take the driver's pod, found that {found}",
        state_after="No driver runs; the generation stays claimed.",
        remedy="Correct the Spark connection, the account's role or the quota, and try again.",
    )
