"""The driver's environment, with all that is secret in it: a Secret that the pod names by reference."""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.jobs.deployments.kubernetes.api import CONFLICT, RefusedError
from airflow_flinkstyle.jobs.deployments.kubernetes.driver import environment, failed, labels
from airflow_flinkstyle.jobs.deployments.rest import NoAnswerError, NotDeliveredError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.deployments.kubernetes.api import KubernetesApi
    from airflow_flinkstyle.jobs.spec import Submission

SECRETS: Final = "secrets"
log = logging.getLogger(__name__)


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
