"""Name and labels of a driver's pod, and the settings with which Spark makes it so.

The driver's environment, with its secrets, is a Secret to which the pod refers by name.
"""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.kubernetes.api import CONFLICT, RefusedError
from airflow_flinkstyle.jobs.deployments.refusals import not_taken, why_final
from airflow_flinkstyle.jobs.deployments.rest import NoAnswerError, NotDeliveredError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.deployments.base import Submission
    from airflow_flinkstyle.jobs.deployments.kubernetes.api import KubernetesApi
    from airflow_flinkstyle.jobs.errors import DriverFailedError

CLAIM_LABEL: Final = "airflow-flinkstyle/claim"
JOB_LABEL: Final = "airflow-flinkstyle/job"
GENERATION_LABEL: Final = "airflow-flinkstyle/generation"
PREFIX: Final = "flinkstyle-"
_PYTHONS: Final = {
    "PYSPARK_PYTHON": "spark.pyspark.python",
    "PYSPARK_DRIVER_PYTHON": "spark.pyspark.driver.python",
}
"""Spark itself writes them into a pod, from these settings."""
_NAME_CHARACTERS: Final = 24
_LABEL_CHARACTERS: Final = 63
SECRETS: Final = "secrets"
log = logging.getLogger(__name__)


def claim_of(submission: Submission) -> str:
    """Return the id of a driver's claim."""
    return _argument(submission, "--claim")


def pod_name(submission: Submission) -> str:
    """Return the pod's name: one for each driver that a caller asks for."""
    return f"{PREFIX}{claim_of(submission)[:_NAME_CHARACTERS].lower()}-{_argument(submission, '--submit')}"


def is_of_claim(pod: str, claim_id: str | None) -> bool:
    """Return whether a pod has the name of a driver of a claim; the API server allows each name once."""
    return bool(claim_id) and pod.startswith(f"{PREFIX}{str(claim_id)[:_NAME_CHARACTERS].lower()}-")


def labels(submission: Submission) -> dict[str, str]:
    """Return the labels of a driver's pod, and of those of its executors."""
    return {
        CLAIM_LABEL: claim_of(submission),
        JOB_LABEL: _label(_argument(submission, "--job")),
        GENERATION_LABEL: _argument(submission, "--generation"),
    }


def environment(submission: Submission) -> dict[str, str]:
    """Return the content of the driver's Secret: its environment except what Spark writes itself."""
    return {name: value for name, value in submission.env.items() if name not in _PYTHONS}


def settings(submission: Submission, pod: str) -> dict[str, str]:
    """Return the settings that name and label the pod, and take its environment from the Secret.

    Nothing in them is secret.
    """
    conf = {"spark.kubernetes.driver.pod.name": pod}
    for role in ("driver", "executor"):
        for label, value in labels(submission).items():
            conf[f"spark.kubernetes.{role}.label.{label}"] = value
    for name in environment(submission):
        conf[f"spark.kubernetes.driver.secretKeyRef.{name}"] = f"{pod}:{name}"
    for variable, name in _PYTHONS.items():
        if variable in submission.env and name not in submission.program.conf:
            conf[name] = submission.env[variable]
    return conf


def wrong(problem: str, remedy: str) -> BadInputError:
    """Build the error for a connection from which no driver could be started."""
    return BadInputError(problem, state_after="Nothing was started or changed.", remedy=remedy)


def failed(found: str, *, output: str | None = None, status: int | None = None) -> DriverFailedError:
    """Build the error for a driver that Kubernetes did not take.

    Args:
        found: The rest of the sentence.
        output: The whole output of ``spark-submit``, if the sentence has less.
        status: The HTTP status, if the API server was asked directly.
    """
    remedy = "Correct the Spark connection, the account's role or the quota, and try again."
    return not_taken(found, by="Kubernetes", remedy=remedy, why=why_final(output or found, status))


def put_secret(api: KubernetesApi, name: str, submission: Submission) -> dict[str, Any]:
    """Write the Secret, and return it.

    Raises:
        DriverFailedError: If it cannot be written.
    """
    data = {key: base64.b64encode(value.encode()).decode() for key, value in environment(submission).items()}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": labels(submission)},
        "data": data,
    }
    try:
        try:
            return api.ask(api.path(SECRETS), method="POST", body=secret)
        except RefusedError as error:
            if error.code != CONFLICT:  # the same submit was tried before
                raise
            return api.ask(api.path(SECRETS, name), method="PUT", body=secret)
    except (NotDeliveredError, NoAnswerError) as error:
        status = getattr(error, "code", None)  # none without an answer
        raise failed(
            f"its environment could not be written to Secret {name}: {error}", status=status
        ) from error


def let_own(api: KubernetesApi, secret: Mapping[str, Any], owner: Mapping[str, Any]) -> None:
    """Make Kubernetes delete the Secret with its owner."""
    name = secret["metadata"]["name"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }
    owned = {**secret, "metadata": {**secret["metadata"], "ownerReferences": [reference]}}
    try:
        api.ask(api.path(SECRETS, name), method="PUT", body=owned)
    except (NotDeliveredError, NoAnswerError) as error:
        log.warning("Secret %s stays when its owner is deleted: %s", name, error)


def _argument(submission: Submission, option: str) -> str:
    arguments = submission.program.arguments
    return arguments[arguments.index(option) + 1]


def _label(text: str) -> str:
    """Return a text as a label's value: shortened, with letters and digits at its ends."""
    kept = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "-_.") else "-" for sign in text)
    return kept[:_LABEL_CHARACTERS].strip("-_.")
