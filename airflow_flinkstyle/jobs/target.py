"""Where drivers run (``SubmitTarget``), and how this package and a script come there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import airflow_flinkstyle
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.errors import DeployModeError

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTALLED: Final = "installed"
PY_FILES: Final = "py-files"
SUPERVISE: Final = "spark.driver.supervise"
YARN_ATTEMPTS: Final = "spark.yarn.maxAppAttempts"


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
    """Store credentials for the agent's environment, or what to assume; never recorded anywhere. An empty one
    is taken out of what the driver inherits."""
    working_dir: str | None = None
    log_dir: str
    """Of drivers on this machine; a cluster keeps the logs of its own."""
    deploy_mode: str = "client"
    """``client``: the driver runs on this machine; ``cluster``: on the master's cluster."""
    deployment: str = ""
    """Name of a deployment that another package brings; empty for this package's own."""
    agent: str = INSTALLED
    """How a driver on a cluster finds this package: ``installed`` beside its Python, or ``py-files``."""
    agent_path: str | None = None
    """``installed``: the launcher's path where the driver runs; None for this one's. ``py-files``: the zip of
    ``flinkstyle agent pack`` where Spark can fetch it; None where spark-submit uploads one (YARN)."""
    cluster_url: str | None = None
    """REST address of the cluster manager, several separated by commas; None for the usual one."""
    web_url: str | None = None
    """Address of the standalone master's page; None for the usual one."""
    proxy_user: str | None = None
    """As whom YARN runs the driver."""
    kube_config: str | None = None
    """Path of a kubeconfig, or ``in-cluster``; None: KUBECONFIG, ~/.kube/config or the pod's own account."""
    spark_operator: str = ""
    """What makes pods on Kubernetes: ``kubeflow`` or ``apache``, whose operator takes a ``SparkApplication``;
    empty for ``spark-submit``, which runs here."""
    application: Mapping[str, Any] = field(default_factory=dict)
    """More of a ``SparkApplication``'s ``spec``, such as templates of pods; no secrets. It changes nothing
    that this package says there."""
    page_url: str | None = None
    """Of a page about a driver's pod, with ``{namespace}`` and ``{pod}`` in it; None if there is none."""
    ui_url: str | None = None
    """The same of Spark's own pages."""
    standby_cores: float | None = None
    """How many cores a driver and its executors may take that wait beside the job's own; None: any number."""
    standby_memory: str | None = None
    """The same of memory, as Spark writes it: ``16g``."""

    def __post_init__(self) -> None:
        """Refuse deploy modes and ways of the agent by name."""
        if self.deploy_mode not in ("client", "cluster"):
            raise DeployModeError(
                f"Deploy mode 'client' or 'cluster' was expected, found {self.deploy_mode!r}.",
                state_after="Nothing was started.",
                remedy="Set the Spark connection's deploy mode to one of them.",
            )
        if self.agent not in (INSTALLED, PY_FILES):
            raise BadInputError(
                f"An agent {INSTALLED!r} or {PY_FILES!r} was expected, found {self.agent!r}.",
                state_after="Nothing was started.",
                remedy="Correct 'agent' in the Spark connection's extra.",
            )

    @property
    def is_on_yarn(self) -> bool:
        """Whether YARN runs the driver."""
        return self.is_remote and self.master.startswith("yarn")

    @property
    def is_on_kubernetes(self) -> bool:
        """Whether a pod of Kubernetes is the driver."""
        return self.deploy_mode == "cluster" and not self.deployment and self.master.startswith("k8s://")

    @property
    def is_remote(self) -> bool:
        """Whether the driver runs elsewhere."""
        return self.deploy_mode == "cluster" or bool(self.deployment)

    @property
    def spark_submit(self) -> str:
        """The program to run."""
        home = Path(self.spark_home) / "bin" if self.spark_home else Path(self.python).parent
        return str(home / "spark-submit")


def require_one_who_relaunches(conf: Mapping[str, str]) -> None:
    """Refuse settings by which a cluster would start a driver again, as callers do.

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


def launcher_path() -> str:
    """Return the launcher's file, without importing the agent (it needs PySpark)."""
    return str(Path(airflow_flinkstyle.__file__).parent / "agent" / "launcher.py")


def launcher_of(target: SubmitTarget) -> str:
    """Return what Spark runs: on YARN this package's own file, which spark-submit uploads."""
    if target.is_on_yarn or not target.is_remote or target.agent_path is None:
        return _in_image(launcher_path(), target)
    path = target.agent_path
    return _in_image(path.removesuffix(".zip") + ".py" if target.agent == PY_FILES else path, target)


def shipped(script: str, target: SubmitTarget) -> list[str]:
    """Return what Spark brings to the driver's Python path: the agent's zip, and a script with an address."""
    zipped = target.agent_path if target.agent == PY_FILES and target.is_remote else None
    agent = [_in_image(zipped, target)] if zipped else []
    return [*agent, *([script] if _has_address(script) else [])]


def script_argument(script: str) -> str:
    """Return the script as the launcher is told it: the path, or the name under which Spark brings it."""
    return script.rpartition("/")[2] if _has_address(script) else script.removeprefix("local:")


def _in_image(path: str, target: SubmitTarget) -> str:
    """Return a path as ``spark-submit`` is told that it is one of the image, not of its machine."""
    return f"local://{path}" if target.is_on_kubernetes and not urlsplit(path).scheme else path


def _has_address(script: str) -> bool:
    return urlsplit(script).scheme not in ("", "local")
