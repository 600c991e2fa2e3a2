"""What a driver's pod is made by, as ``deployment`` needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.deployments.base import DriverState
    from airflow_flinkstyle.jobs.spec import Submission


class Maker(Protocol):
    """Makes pods of drivers, by the names that they are given."""

    name: str
    """Of the deployment: how its pods are made, and so what is asked of one that is not there."""

    def require_able(self) -> None:
        """Refuse what could make no pod; raises ``BadInputError``."""

    def make(self, submission: Submission, pod: str) -> Mapping[str, Any] | None:
        """Let the pod be made, and return at once with the object that owns the driver's Secret.

        None if it is unknown whether there will be a pod; raises ``DriverFailedError`` if there is none.
        """

    def find(self, selector: str) -> str | None:
        """Return the name of a pod that is still to be made; raises as ``KubernetesApi.ask``."""

    def without_pod(self, pod: str) -> DriverState:
        """Return what a pod that the API server does not know means."""

    def gave_up(self, pod: str) -> str:
        """Return why a pod that waits will never begin; empty if it may, or nobody can tell."""

    def words_without_pod(self, pod: str) -> str:
        """Return why there is no pod, in words."""

    def withdraw(self, pod: str) -> None:
        """Let no pod of that name be made any more."""
