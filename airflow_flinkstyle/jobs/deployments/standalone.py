"""Drivers on a standalone Spark cluster: submitted to the master's REST port, run by a worker.

The cluster does not start a driver again (no ``supervise``): callers do, by one set of rules for all
deployments. They verify the claim, give the driver its current logins, count retries, and do not retry a
failure that cannot pass by itself. So a submission is one process, and its id names it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote, urlencode

from airflow_flinkstyle.jobs.deployments.base import (
    Alive,
    DriverPages,
    DriverPending,
    DriverState,
    Gone,
    Unknown,
)
from airflow_flinkstyle.jobs.deployments.refusals import not_taken
from airflow_flinkstyle.jobs.deployments.rest import (
    NoAnswerError,
    NotDeliveredError,
    StateCache,
    ask,
    both_ends,
    read,
)
from airflow_flinkstyle.jobs.deployments.room import of_standalone
from airflow_flinkstyle.jobs.packing import DriverAgent, HandOver

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.jobs.deployments.base import Submission
    from airflow_flinkstyle.jobs.deployments.room import Room
    from airflow_flinkstyle.protocol.records import IncarnationRecord

SUPERVISE: Final = "spark.driver.supervise"
REST_PORT: Final = 6066
WEB_PORT: Final = 8080
_QUEUED = "SUBMITTED"
_LIVING = ("RUNNING", "RELAUNCHING")
_ENDED = ("FINISHED", "KILLED", "FAILED")
"""A worker reports these once the driver's process has ended."""
_LOG_BYTES = 64 << 10
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standalone:
    """A worker of a standalone cluster runs the driver."""

    how: ClassVar = HandOver(deploy_mode="cluster")
    """The worker itself runs ``spark-submit``, in client mode."""

    agent: DriverAgent = field(default_factory=DriverAgent)
    cluster_url: str | None = None
    """Addresses of the masters' REST ports, separated by commas; None for the usual ones."""
    web_url: str | None = None
    """Addresses of the masters' pages, separated by commas; None for the usual ones."""


class StandaloneDeployment:
    """A driver is one submission to a master."""

    name = "standalone"

    def __init__(self, own: Standalone, *, master: str) -> None:
        """Prepare.

        Args:
            own: How to reach the masters.
            master: Their addresses: ``spark://host:port,host:port``.
        """
        self._own, self._master = own, master
        self._hosts = [address.rsplit(":", 1)[0] for address in _addresses(master)]
        self._states = StateCache()

    def require_able(self) -> None:
        """Refuse an agent that no worker of the cluster could find.

        Drivers may be started from anywhere: they end with nothing of this host.

        Raises:
            BadInputError: If the agent comes in a zip, and no place of it is named.
        """
        self._own.agent.require_place(
            "a standalone cluster", "copy both files to where the workers find them"
        )

    def submit(self, submission: Submission) -> Mapping[str, str]:
        """Ask the leading master for a driver; without an answer it does not ask again, as it may have one.

        Raises:
            DriverFailedError: If no master took it.
        """
        body = _request(submission, self._master)
        refusals = []
        for url in self._rest_urls():
            try:
                answer = ask(f"{url}/v1/submissions/create", method="POST", body=body)
            except NotDeliveredError as error:
                refusals.append(str(error))
            except NoAnswerError as error:
                log.warning("Whether a driver was submitted is unknown: %s", error)
                return {"driver": ""}
            else:
                if answer.get("success"):
                    log.info("Submitted driver %s to %s", answer.get("submissionId"), url)
                    return {"driver": str(answer.get("submissionId") or "")}
                refusals.append(f"{url} answered {answer.get('message') or answer}")
        raise not_taken(
            f"{'; '.join(refusals)}.",
            by=f"A master of {self._master}",
            why=None,  # a master gives no reasons: one that does not lead refuses as well
            remedy="Let the master's REST port be reached from here (spark.master.rest.enabled; rest-port in "
            "the Spark connection), and try again.",
        )

    def find(self, submission: Submission) -> Mapping[str, str] | None:
        """Find nothing: a master's list of drivers does not show which job each belongs to.

        A driver whose id was lost is found by its own incarnation record.
        """
        return None

    def native_id(self, record: IncarnationRecord) -> Mapping[str, str]:
        """Return the id that the driver's worker gave it, as the driver recorded it."""
        return {"driver": record.cluster_id, "said_by": "driver"}

    def state(self, native_id: Mapping[str, str]) -> DriverState:
        """Return the driver's state as the master reports it."""
        driver = native_id.get("driver", "")
        if not driver:
            return Unknown("the id that the master gave it was not recorded")
        return self._states.state(driver, lambda: _judge(*self._status(driver)))

    def end(self, native_id: Mapping[str, str]) -> DriverState:
        """Let the worker kill the driver, and wait until it has ended; only one that a caller submitted."""
        driver, state = native_id.get("driver", ""), self.state(native_id)
        if not driver or isinstance(state, Gone):
            return state
        if native_id.get("said_by"):  # a forged record could name any driver of the cluster
            return Unknown("only what a caller submitted is killed")
        for url in self._rest_urls():
            try:
                ask(f"{url}/v1/submissions/kill/{quote(driver, safe='')}", method="POST", body={})
            except (NotDeliveredError, NoAnswerError) as error:
                log.info("The driver is not killed there: %s", error)
        return self._states.until_ended(driver, lambda: self.state(native_id))

    def log_tail(self, native_id: Mapping[str, str], *, lines: int = 30) -> str:
        """Return the end of the driver's logs, from the worker's page; why not, if that does not answer."""
        driver = native_id.get("driver", "")
        status = self._status(driver)[0] if driver else {}
        worker = self._worker_page(str(status.get("workerId") or ""))
        if worker is None:
            exception = str(status.get("message") or "")
            return "\n".join(exception.splitlines()[-lines:])
        ends = []
        for kind in ("stdout", "stderr"):
            query = urlencode({"driverId": driver, "logType": kind, "byteLength": _LOG_BYTES})
            try:
                text = read(f"{worker}/log/?{query}")
            except (NotDeliveredError, NoAnswerError) as error:
                return f"(not readable from here: {error})"
            ends.append(text.partition("\n")[2])  # the first line holds the range of bytes
        return both_ends(ends[0], ends[1], lines)

    def room(self) -> Room | None:
        """Return what the workers have free, from the master's page."""
        for url in self._web_urls():
            try:
                return of_standalone(ask(f"{url}/json/"))
            except (NotDeliveredError, NoAnswerError) as error:
                log.info("The master's page is not readable from here: %s", error)
        return None

    def pages(self, native_id: Mapping[str, str]) -> DriverPages:
        """Return the master's page, and the worker's page of what Python writes."""
        driver = native_id.get("driver", "")
        status = self._status(driver)[0] if driver else {}
        worker = self._worker_page(str(status.get("workerId") or ""))
        query = urlencode({"driverId": driver, "logType": "stdout"})
        log_page = f"{worker}/logPage/?{query}" if worker else ""
        return DriverPages(cluster=next(self._web_urls(), ""), log=log_page)

    def _status(self, driver: str) -> tuple[Mapping[str, Any], str]:
        """Return the status from the master that knows the driver, and why there is none."""
        reasons = []
        for url in self._rest_urls():
            try:
                status = ask(f"{url}/v1/submissions/status/{quote(driver, safe='')}")
            except (NotDeliveredError, NoAnswerError) as error:
                reasons.append(str(error))
            else:
                if status.get("success"):
                    return status, ""
                reasons.append(f"{url} does not know it")
        return {}, "; ".join(reasons)

    def _worker_page(self, worker_id: str) -> str | None:
        for url in self._web_urls() if worker_id else ():
            try:
                workers = ask(f"{url}/json/").get("workers", ())
            except (NotDeliveredError, NoAnswerError) as error:
                log.info("The master's page is not readable from here: %s", error)
                continue
            found = [worker.get("webuiaddress") for worker in workers if worker.get("id") == worker_id]
            if found and found[0]:
                return str(found[0])
        return None

    def _rest_urls(self) -> Iterator[str]:
        if self._own.cluster_url:
            yield from (url.rstrip("/") for url in self._own.cluster_url.split(","))
        else:
            yield from (f"http://{host}:{REST_PORT}" for host in self._hosts)

    def _web_urls(self) -> Iterator[str]:
        if self._own.web_url:
            yield from (url.rstrip("/") for url in self._own.web_url.split(","))
        else:
            yield from (f"http://{host}:{WEB_PORT}" for host in self._hosts)


def _addresses(master: str) -> list[str]:
    return [address for address in master.removeprefix("spark://").split(",") if address]


def _judge(status: Mapping[str, Any], reason: str) -> DriverState:
    """Return the state that a master's answer means; a driver that it does not know is Unknown, not Gone."""
    state = status.get("driverState")
    if state == _QUEUED:
        return DriverPending("no worker of the cluster has the memory and the cores that the driver asks for")
    if state in _LIVING:
        return Alive()
    if state in _ENDED:
        return Gone()
    if state == "ERROR" and status.get("message"):  # the worker could not start it, and reports why
        return Gone()
    return Unknown(reason or f"the master reports {state}")  # a lost worker's driver may run on


def _request(submission: Submission, master: str) -> dict[str, Any]:
    """Return the body that lets a worker run ``spark-submit`` in the driver's own JVM.

    A master takes no Python script. So the driver's JVM runs Spark's own submission, in client mode; without
    the master among its arguments it would run on the worker alone.
    """
    jvm = {
        name: value
        for name, value in submission.program.conf.items()
        if name.startswith("spark.driver.") and name != SUPERVISE
    }
    return {
        "action": "CreateSubmissionRequest",
        "appResource": "",
        "mainClass": "org.apache.spark.deploy.SparkSubmit",
        "appArgs": list(submission.argv[1:]),
        "clientSparkVersion": "airflow_flinkstyle",
        "environmentVariables": dict(submission.env),
        "sparkProperties": {
            **jvm,
            SUPERVISE: "false",
            "spark.app.name": submission.name,
            "spark.master": master,
            "spark.submit.deployMode": "cluster",
        },
    }
