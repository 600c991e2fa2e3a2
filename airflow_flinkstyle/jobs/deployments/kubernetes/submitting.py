"""Pods made by ``spark-submit`` in cluster mode, which runs here: the worker needs Java and Spark."""

from __future__ import annotations

import logging
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.jobs.deployments.base import DriverState, Unknown
from airflow_flinkstyle.jobs.deployments.kubernetes.api import IN_CLUSTER
from airflow_flinkstyle.jobs.deployments.kubernetes.driver import failed, settings
from airflow_flinkstyle.jobs.deployments.kubernetes.pods import NO_POD, refusal_words
from airflow_flinkstyle.jobs.deployments.rest import NoAnswerError, NotDeliveredError
from airflow_flinkstyle.kafka.login.driver import scrub

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.deployments.kubernetes.api import KubernetesApi
    from airflow_flinkstyle.jobs.spec import Submission
    from airflow_flinkstyle.jobs.target import SubmitTarget

_WAIT_FOR_END: Final = "spark.kubernetes.submission.waitAppCompletion"
_SUBMIT_TIMEOUT_S = 600.0
_SHOWN_LINES = 15
_WITHDRAWN_S, _LOOK_S = 120.0, 0.5
"""How long a pod may take to end that Spark deletes again; its grace period is 30 s."""
log = logging.getLogger(__name__)


class SparkSubmit:
    """Makes a pod with Spark's own command."""

    name = "kubernetes"

    def __init__(self, target: SubmitTarget, api: KubernetesApi) -> None:
        self._target, self._api = target, api

    def require_able(self) -> None:
        """Refuse nothing: that Spark is missing here, its command says itself."""

    def make(self, submission: Submission, pod: str) -> dict[str, Any] | None:
        """Run ``spark-submit``, and return the pod once the API server has it; None if it does not answer.

        Raises:
            DriverFailedError: If there is none.
        """
        said, code = self._run(submission, pod)
        tail = "\n".join(scrub(said, submission.env).splitlines()[-_SHOWN_LINES:])
        try:
            found = self._api.get(self._api.pod(pod))
            if found is not None and code and "deletionTimestamp" in found["metadata"]:
                found = self._once_withdrawn(pod)
        except (NotDeliveredError, NoAnswerError) as error:
            log.warning("Whether a driver was submitted is unknown: %s; spark-submit said: %s", error, tail)
            return None
        if found is None:
            found_words = refusal_words(said) or f"spark-submit ended with exit code {code}:\n{tail}\n"
            raise failed(found_words, said=said)
        return {"apiVersion": "v1", "kind": "Pod", **found}

    def find(self, selector: str) -> str | None:
        """Return none: its pod is there once it has ended, or never."""
        return None

    def without_pod(self, pod: str) -> DriverState:
        """Return that nothing is known: it may have been removed by force, while its process runs."""
        return Unknown("the API server knows no such pod")

    def gave_up(self, pod: str) -> str:
        """Say nothing: Spark deletes a pod that it cannot complete."""
        return ""

    def words_without_pod(self, pod: str) -> str:
        """Return that there is none."""
        return NO_POD

    def withdraw(self, pod: str) -> None:
        """Do nothing: who makes a pod here has ended."""

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


def _command(submission: Submission, pod: str) -> list[str]:
    """Return the command line, on which nothing is secret; of a setting given twice the last counts."""
    conf = {**settings(submission, pod), _WAIT_FOR_END: "false"}
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    program_at = len(submission.argv) - len(submission.program.arguments) - 1
    return [*submission.argv[:program_at], *options, *submission.argv[program_at:]]
