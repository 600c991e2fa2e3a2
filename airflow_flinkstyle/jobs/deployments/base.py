"""The interface of ways to run drivers, and what a caller hands over (``Submission``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from airflow_flinkstyle.jobs.errors import DriverFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.protocol.records import IncarnationRecord

STUCK_S: Final = 300.0
"""How long a driver may wait for what its cluster lacks: an image, room on a node or in a queue."""
PREPARING_S: Final = 1800.0
"""How long a cluster may prepare a driver, for example pull a large image."""
CLAIM: Final = "claim"
"""Key of a native id, added by the caller of a deployment: the id of the claim whose driver it must be."""
SUCCEEDED: Final = "succeeded"
"""Key of a native id to end, added by a caller that starts the next driver under the same claim: a supervisor
stays. It may have started the next one already, which would have none; else it sees that it is too late."""
BY_SUPERVISOR: Final = "supervisor:"
"""With this begins the key of a submit by a supervisor, which has what an earlier driver was started with."""
OF_ANOTHER: Final = "what the records name is not known to be a driver of this run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What Spark runs, with or without a command line: the launcher with the user's script."""

    conf: Mapping[str, str] = field(default_factory=dict)
    """The driver's settings."""
    application: str = ""
    """The launcher, as Spark finds it where the driver runs."""
    arguments: tuple[str, ...] = ()
    py_files: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One driver process to start: everything a deployment needs."""

    argv: tuple[str, ...]
    marker: tuple[str, ...]
    """The part of ``argv`` that no other generation of any job has; it finds the process again."""
    env: Mapping[str, str] = field(repr=False)
    """The driver's environment."""
    cwd: str | None
    log_path: str
    name: str = ""
    """For people: the job with its generation."""
    submitter_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For a program that submits a driver to a cluster; the driver gets none of it."""
    program: Program = field(default_factory=Program)
    """What ``argv`` makes Spark run, for deployments that submit without a command line."""


@dataclass(frozen=True, slots=True)
class Alive:
    """The driver process runs."""

    def __str__(self) -> str:
        """Return the state in words."""
        return "it runs"


@dataclass(frozen=True, slots=True)
class DriverPending:
    """The cluster has taken the driver, and its process has not begun."""

    reason: str
    may_pass: bool = False
    """Whether the cluster is preparing it; if not, what is missing may never come, such as an image."""

    @property
    def grace_s(self) -> float:
        """How long to wait before it is ended."""
        return PREPARING_S if self.may_pass else STUCK_S

    def __str__(self) -> str:
        """Return the state in words."""
        return f"it has not begun: {self.reason}"


@dataclass(frozen=True, slots=True)
class Gone:
    """The driver process has certainly ended."""

    def __str__(self) -> str:
        """Return the state in words."""
        return "it has ended"


@dataclass(frozen=True, slots=True)
class Unknown:
    """The state cannot be seen from here; it never counts as an end, so nothing is started twice."""

    reason: str

    def __str__(self) -> str:
        """Return the state in words."""
        return f"nobody here can tell whether it runs: {self.reason}"


DriverState = Alive | DriverPending | Gone | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPages:
    """Addresses for people; empty where there is none."""

    cluster: str = ""
    """The cluster manager's page about the driver."""
    log: str = ""
    spark_ui: str = ""


class Deployment(Protocol):
    """Starts drivers, and returns their states.

    Native ids come from records, which anyone who can write the store can change. So callers add the id of
    the driver's claim under ``CLAIM``. A deployment that compares it with what its cluster reports sets
    ``binds_claims = True``. With any other, only drivers whose native id a caller has signed are ended, and
    only their logs are shown.

    Two more methods are optional: ``pages(native_id) -> DriverPages``, and ``room() -> Room | None``
    (module ``room``) for what its cluster has free.
    """

    @property
    def name(self) -> str:
        """Part of the handle, so that another deployment does not misread its native id."""

    def require_able(self) -> None:
        """Refuse to start drivers from here if they would not stay, before anything is claimed or stopped.

        Raises:
            DiesWithStarterError: If they would end with the task or the worker that starts them.
            BadInputError, ClusterLoginError: If the cluster would not take them from here.
        """

    def submit(self, submission: Submission) -> Mapping[str, str]:
        """Start the driver and return at once with its native id; raises ``DriverFailedError``."""

    def find(self, submission: Submission) -> Mapping[str, str] | None:
        """Return a living driver that was submitted before, if its native id was lost with its caller."""

    def native_id(self, record: IncarnationRecord) -> Mapping[str, str]:
        """Return the native id of a driver that described itself."""

    def state(self, native_id: Mapping[str, str]) -> DriverState:
        """Return whether the driver lives."""

    def end(self, native_id: Mapping[str, str]) -> DriverState:
        """Kill the driver, without a chance to drain, and return its state afterwards."""

    def log_tail(self, native_id: Mapping[str, str], *, lines: int = 30) -> str:
        """Return the end of the driver's log; empty if it cannot be read from here."""


class OutOfSight:
    """A deployment that this caller must not or cannot ask: only the lease shows if its drivers live."""

    def __init__(self, name: str, reason: str) -> None:
        self.name, self._reason = name, reason

    def require_able(self) -> None:
        """Start nothing from here.

        Raises:
            DriverFailedError: Always.
        """
        raise self._refused()

    def submit(self, submission: Submission) -> Mapping[str, str]:
        """Refuse, as ``require_able``."""
        raise self._refused()

    def find(self, submission: Submission) -> Mapping[str, str] | None:
        """Find nothing."""
        return None

    def native_id(self, record: IncarnationRecord) -> Mapping[str, str]:
        """Name nothing."""
        return {}

    def state(self, native_id: Mapping[str, str]) -> DriverState:
        """Tell nothing."""
        return Unknown(self._reason)

    def end(self, native_id: Mapping[str, str]) -> DriverState:
        """Do nothing."""
        return Unknown(self._reason)

    def log_tail(self, native_id: Mapping[str, str], *, lines: int = 30) -> str:
        """Show nothing."""
        return ""

    def _refused(self) -> DriverFailedError:
        return DriverFailedError(
            f"Deployment {self.name} was expected to be usable from here, found that {self._reason}.",
            state_after="Nothing was started.",
            remedy="Give this caller the signing key, and the package that brings the deployment.",
        )
