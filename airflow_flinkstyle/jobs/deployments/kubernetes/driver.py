"""What a driver's pod is called, how it is labelled, and what Spark is told to make it so.

The driver's environment, with all that is secret in it, is a Secret that the pod names by reference.
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
"""Spark writes them into a pod by itself, from these settings."""
_NAME_CHARACTERS: Final = 24
_LABEL_CHARACTERS: Final = 63
SECRETS: Final = "secrets"
log = logging.getLogger(__name__)


def claim_of(submission: Submission) -> str:
    """Return the id of a driver's claim."""
    return _said(submission, "--claim")


def pod_name(submission: Submission) -> str:
    """Return the pod's name: one for each driver that a caller asks for."""
    return f"{PREFIX}{claim_of(submission)[:_NAME_CHARACTERS].lower()}-{_said(submission, '--submit')}"


def is_of_claim(pod: str, claim_id: str | None) -> bool:
    """Return whether a pod bears the name of one of a claim's drivers, which the API server gives once."""
    return bool(claim_id) and pod.startswith(f"{PREFIX}{str(claim_id)[:_NAME_CHARACTERS].lower()}-")


def labels(submission: Submission) -> dict[str, str]:
    """Return the labels of a driver's pod, and of those of its executors."""
    return {
        CLAIM_LABEL: claim_of(submission),
        JOB_LABEL: _label(_said(submission, "--job")),
        GENERATION_LABEL: _said(submission, "--generation"),
    }


def environment(submission: Submission) -> dict[str, str]:
    """Return what is kept in the driver's Secret: its environment but for what Spark writes itself."""
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


def failed(found: str, *, said: str | None = None, status: int | None = None) -> DriverFailedError:
    """Build the error for a driver that Kubernetes did not take.

    Args:
        found: The rest of the sentence.
        said: All that was said, if the sentence has less.
        status: Of HTTP, if the API server was asked here.
    """
    remedy = "Correct the Spark connection, the account's role or the quota, and try again."
    return not_taken(found, by="Kubernetes", remedy=remedy, why=why_final(said or found, status))


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
        status = getattr(error, "code", None)  # none, if nobody answered
        raise failed(
            f"its environment could not be written to Secret {name}: {error}", status=status
        ) from error


def let_own(api: KubernetesApi, secret: Mapping[str, Any], owner: Mapping[str, Any]) -> None:
    """Let Kubernetes delete the Secret with its owner."""
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


def _said(submission: Submission, option: str) -> str:
    arguments = submission.program.arguments
    return arguments[arguments.index(option) + 1]


def _label(text: str) -> str:
    """Return a text as a label's value: shortened, with letters and digits at its ends."""
    kept = "".join(sign if sign.isascii() and (sign.isalnum() or sign in "-_.") else "-" for sign in text)
    return kept[:_LABEL_CHARACTERS].strip("-_.")
