"""A host of its own: it sees its own processes only, and its clock is another one."""

# ruff: noqa: ANN401
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.clock import LeaseClock
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.base import Unknown
from airflow_flinkstyle.jobs.errors import DiesWithStarterError, DriverFailedError
from airflow_flinkstyle.jobs.status import Sightings
from airflow_flinkstyle.jobs.view import JobView
from testbed.keys import SIGNER

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

LEASE_S = 2.0


class Host(LeaseClock):
    """A deployment's view from one host, and its clock; fulfils ``Deployment``."""

    name = "threads"

    def __init__(self, world: World, host: str, ahead_s: float = 0.0) -> None:
        self.world, self.host, self.ahead_s = world, host, ahead_s
        self.broken: str | None = None
        self.refused: DiesWithStarterError | None = None

    @property
    def now_s(self) -> float:
        return super().now_s + self.ahead_s

    def client(self) -> JobClient:
        """A new process of this host: it has seen nothing so far."""
        return JobClient(
            view=JobView(
                board=self.world.board,
                repository=self.world.repository,
                deployment=self,
                signer=SIGNER,
                poll_s=0.01,
                base_env={},
                sightings=Sightings(self),
            )
        )

    def require_able(self) -> None:
        if self.refused is not None:
            raise self.refused

    def submit(self, submission: Any) -> dict[str, str]:
        if self.broken is not None:
            raise DriverFailedError(f"No {self.broken}.", state_after="No driver runs.", remedy="Correct it.")
        return {**self.world.submit_on(self.host, submission), "host": self.host}

    def find(self, submission: Any) -> dict[str, str] | None:
        for pid, driver in self.world.drivers.items():
            same = (driver.generation, driver.host) == (int(submission.marker[-1]), self.host)
            if same and not driver.killed.is_set():
                return {"pid": str(pid), "host": self.host}
        return None

    def native_id(self, record: Any) -> dict[str, str]:
        return {"pid": str(record.jvm_pid), "host": record.host}

    def state(self, native_id: Any) -> Any:
        if native_id["host"] != self.host:
            return Unknown(f"it was started on {native_id['host']}, this is {self.host}")
        return self.world.state(native_id)

    def end(self, native_id: Any) -> Any:
        state = self.state(native_id)
        return state if isinstance(state, Unknown) else self.world.end(native_id)

    def log_tail(self, native_id: Any, *, lines: int = 30) -> str:
        return ""


def start(world: World, host: Host, key: str = "start") -> JobClient:
    client = host.client()
    world.logs.produce(10)
    handle = client.starts.start(replace(world.spec(), lease_s=LEASE_S), world.target(), claim_key=key)
    client.drivers.wait_running(handle.generation, timeout_s=20)
    world.until(lambda: client.view.status().heartbeat.batches())
    return client
