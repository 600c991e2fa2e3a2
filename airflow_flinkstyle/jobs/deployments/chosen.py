"""Which deployment runs a job's drivers: by the target that its start names."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.deployments.base import OutOfSight
from airflow_flinkstyle.jobs.deployments.kubernetes.deployment import KubernetesDeployment
from airflow_flinkstyle.jobs.deployments.standalone import StandaloneDeployment
from airflow_flinkstyle.jobs.deployments.yarn.deployment import YarnDeployment
from airflow_flinkstyle.jobs.errors import DeployModeError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.deployments.base import Deployment
    from airflow_flinkstyle.jobs.target import SubmitTarget

GROUP: Final = "airflow_flinkstyle.deployments"
"""Entry points by which other packages bring deployments: each a callable that takes a ``SubmitTarget``."""


def deployment_for(target: SubmitTarget) -> Deployment:
    """Return what runs drivers on a cluster.

    Raises:
        DeployModeError: If this package cannot, and no other one brings the deployment that is named.
    """
    if target.deployment:
        return _brought(target)
    if target.is_on_yarn:
        return YarnDeployment(target)
    if target.is_on_kubernetes:
        return KubernetesDeployment(target)
    if target.master.startswith("spark://"):
        return StandaloneDeployment(target)
    raise DeployModeError(
        "A master that can hold a driver (spark://, yarn, k8s://) was expected with deploy mode 'cluster', "
        f"found {target.master}.",
        state_after="Nothing was started.",
        remedy="Set the Spark connection's deploy mode to client; or name a deployment of another package "
        "in its extra ('deployment').",
    )


def _brought(target: SubmitTarget) -> Deployment:
    found = {point.name: point for point in entry_points(group=GROUP)}
    if target.deployment not in found:
        raise DeployModeError(
            f"A deployment {target.deployment!r} was expected among the entry points {GROUP}, found "
            f"{', '.join(sorted(found)) or 'none'}.",
            state_after="Nothing was started.",
            remedy="Install the package that brings it, where Airflow's workers and triggerers run.",
        )
    made: Deployment = found[target.deployment].load()(target)
    return made


@dataclass(slots=True, kw_only=True)
class Deployments:
    """Those of one caller, by claim: what asks a cluster remembers a moment what it said."""

    make: Callable[[SubmitTarget], Deployment] = deployment_for
    _made: dict[str, Deployment] = field(default_factory=dict)

    def of_claim(
        self,
        claim_id: str,
        launch: Mapping[str, Any],
        verified: Callable[[], SubmitTarget],
        *,
        local: Deployment,
    ) -> Deployment:
        """Return what runs the drivers of a claim.

        A cluster is asked only at the address of a claim that a caller signed: who can write the store must
        not choose whom workers talk to.

        Args:
            claim_id: The claim's.
            launch: The claim's, as the store has it.
            verified: Returns the target of the signed claim, or raises.
            local: For drivers of this machine.
        """
        if not _is_remote(launch):
            return local
        if claim_id not in self._made:
            try:
                self._made[claim_id] = self.make(verified())
            except FlinkstyleError as error:
                return OutOfSight("of a cluster", f"it is not asked ({error.code})")
        return self._made[claim_id]


def _is_remote(launch: Mapping[str, Any]) -> bool:
    target = launch.get("target")
    if not isinstance(target, dict):
        return False
    return target.get("deploy_mode") == "cluster" or bool(target.get("deployment"))
