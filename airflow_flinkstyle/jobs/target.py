"""Where drivers run (``SubmitTarget``), as a claim records it, and what runs them there."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.deployments.base import OutOfSight
from airflow_flinkstyle.jobs.deployments.detached import Detached, DetachedDeployment
from airflow_flinkstyle.jobs.deployments.kubernetes.deployment import Kubernetes, KubernetesDeployment
from airflow_flinkstyle.jobs.deployments.standalone import SUPERVISE, Standalone, StandaloneDeployment
from airflow_flinkstyle.jobs.deployments.yarn import YARN_ATTEMPTS, Yarn, YarnDeployment
from airflow_flinkstyle.jobs.errors import DEPLOY_MODE
from airflow_flinkstyle.jobs.packing import DriverAgent, HandOver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.deployments.base import Deployment

GROUP: Final = "airflow_flinkstyle.deployments"
"""Entry points by which other packages bring deployments: each a callable that takes a ``SubmitTarget``."""
_ABSENT: Final[Mapping[str, Any]] = {
    "deploy_mode": "client",
    "deployment": "",
    "agent": DriverAgent().way,
    "agent_path": None,
    "cluster_url": None,
    "web_url": None,
    "proxy_user": None,
    "kube_config": None,
    "spark_operator": "",
    "application": {},
    "page_url": None,
    "ui_url": None,
}
"""The fields of all deployments by their names in a record, as they are where a deployment has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """A deployment of another package runs the driver."""

    name: str
    """Name of the entry point."""
    how: HandOver = field(default_factory=HandOver)
    """That of YARN if the master is YARN."""
    agent: DriverAgent = field(default_factory=DriverAgent)
    cluster_url: str | None = None
    """``cluster-url`` of the Spark connection's extra."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The connection's other settings of clusters, by the names of the other deployments' fields."""


DeploymentChoice = Detached | Standalone | Yarn | Kubernetes | Brought


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitTarget:
    """Where drivers run; plain values that a hook reads from connections."""

    master: str
    python: str
    """Interpreter with PySpark (or, with ``spark_home``, any that its Spark supports)."""
    spark_home: str | None = None
    """None: the spark-submit that is beside ``python``."""
    conf: Mapping[str, str] = field(default_factory=dict)
    jars: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    secret_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Store credentials for the agent's environment, or a role to assume; never recorded. An empty value
    removes the variable from what the driver inherits."""
    working_dir: str | None = None
    log_dir: str
    """Of drivers on this machine; a cluster keeps the logs of its own."""
    standby_cores: float | None = None
    """How many cores a standby and its executors may take beside the running job; None: any number."""
    standby_memory: str | None = None
    """The same of memory, as Spark writes it: ``16g``."""
    deployment: DeploymentChoice = field(default_factory=Detached)
    """What runs the driver there, with its own settings."""

    @property
    def is_remote(self) -> bool:
        """Whether the driver runs elsewhere."""
        return not isinstance(self.deployment, Detached)

    @property
    def spark_submit(self) -> str:
        """The program to run."""
        home = Path(self.spark_home) / "bin" if self.spark_home else Path(self.python).parent
        return str(home / "spark-submit")


def record_of(target: SubmitTarget) -> dict[str, Any]:
    """Return a target as a claim records it: one object with the fields of all deployments; no secrets."""
    record = asdict(target)
    del record["secret_env"]
    own = record.pop("deployment")
    agent = own.pop("agent", None) or asdict(DriverAgent())
    more = own.pop("settings", {})
    own |= {"agent": agent["way"], "agent_path": agent["path"]}
    own["deploy_mode"] = target.deployment.how.deploy_mode
    if own.pop("how", None):
        own["deployment"] = own.pop("name")
    return {**record, **_ABSENT, **more, **own}


def target_of(record: Mapping[str, Any], *, secret_env: Mapping[str, str]) -> SubmitTarget:
    """Return the target of a record, or of a connection's fields by the names that a record has.

    Raises:
        BadInputError: ``DEPLOY_MODE`` if its master, deploy mode and deployment do not fit together.
        BadInputError: If drivers could not get the agent in the way that is named.
        KeyError, TypeError: If it is no such record.
    """
    common = {name: value for name, value in record.items() if name not in _ABSENT}
    own = {**_ABSENT, **{name: value for name, value in record.items() if name in _ABSENT}}
    common |= {name: tuple(common.get(name, ())) for name in ("jars", "packages")}
    return SubmitTarget(**common, secret_env=secret_env, deployment=_choice(common["master"], own))


def _choice(master: str, own: dict[str, Any]) -> DeploymentChoice:
    mode, name = own.pop("deploy_mode"), own.pop("deployment")
    agent = DriverAgent(way=own.pop("agent"), path=own.pop("agent_path"))
    if mode not in ("client", "cluster"):
        raise DEPLOY_MODE.with_text(
            f"Deploy mode 'client' or 'cluster' was expected, found {mode!r}.",
            remedy="Set the Spark connection's deploy mode to one of them.",
        )
    if name:
        how = replace(Yarn.how if master.startswith("yarn") else HandOver(), deploy_mode=mode)
        return Brought(name=name, how=how, agent=agent, cluster_url=own.pop("cluster_url"), settings=own)
    if mode == "client":
        return Detached()
    if master.startswith("spark://"):
        return Standalone(agent=agent, cluster_url=own["cluster_url"], web_url=own["web_url"])
    if master.startswith("yarn"):
        return Yarn(agent=agent, cluster_url=own["cluster_url"], proxy_user=own["proxy_user"])
    if master.startswith("k8s://"):
        names = ("kube_config", "spark_operator", "application", "page_url", "ui_url")
        return Kubernetes(agent=agent, **{name: own[name] for name in names})
    raise DEPLOY_MODE.with_text(
        "A master that can hold a driver (spark://, yarn, k8s://) was expected with deploy mode 'cluster', "
        f"found {master}.",
        remedy="Set the Spark connection's deploy mode to client; or name a deployment of another package "
        "in its extra ('deployment').",
    )


def deployment_for(target: SubmitTarget) -> Deployment:
    """Return what runs drivers at a target.

    Raises:
        BadInputError: ``DEPLOY_MODE`` if no package has the deployment that is named.
    """
    match target.deployment:
        case Detached():
            return DetachedDeployment()
        case Standalone() as own:
            return StandaloneDeployment(own, master=target.master)
        case Yarn() as own:
            return YarnDeployment(own, conf=target.conf)
        case Kubernetes() as own:
            return KubernetesDeployment(own, master=target.master, conf=target.conf)
        case Brought(name=name):
            return _brought(name, target)


def _brought(name: str, target: SubmitTarget) -> Deployment:
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        raise DEPLOY_MODE.with_text(
            f"A deployment {name!r} was expected among the entry points {GROUP}, found "
            f"{', '.join(sorted(found)) or 'none'}.",
            remedy="Install the package that brings it, where Airflow's workers and triggerers run.",
        )
    made: Deployment = found[name].load()(target)
    return made


@dataclass(slots=True, kw_only=True)
class Deployments:
    """The deployments of one caller, by claim; kept, since each caches its cluster's answers for a moment."""

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

        A cluster is asked only at the address in a signed claim: write access to the store must not be enough
        to choose which address workers contact.

        Args:
            claim_id: The claim's.
            launch: The claim's, as the store has it.
            verified: Returns the target of the signed claim, or raises.
            local: For drivers of this machine.
        """
        record = launch.get("target")
        if not (isinstance(record, dict) and runs_elsewhere(record)):
            return local
        if claim_id not in self._made:
            try:
                self._made[claim_id] = self.make(verified())
            except FlinkstyleError as error:
                return OutOfSight("of a cluster", f"it is not asked ({error.code})")
        return self._made[claim_id]


def runs_elsewhere(record: Mapping[str, Any]) -> bool:
    """Whether the driver runs elsewhere, by a target's record, which may not be verified yet."""
    return record.get("deploy_mode") == "cluster" or bool(record.get("deployment"))


def require_no_relaunch_by_cluster(conf: Mapping[str, str]) -> None:
    """Refuse settings with which a cluster would start a driver again: only callers do.

    Raises:
        BadInputError: Naming the setting.
    """
    for name, kept in ((SUPERVISE, "false"), (YARN_ATTEMPTS, "1")):
        if conf.get(name, kept) != kept:
            raise BadInputError(
                f"A driver that only callers start again was expected ({name}={kept}), found {conf[name]}.",
                state_after="Nothing was started.",
                remedy=f"Take {name} out: sensors and operators start a driver again that has died.",
            )
