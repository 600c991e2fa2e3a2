"""Drivers on YARN: submitted by ``spark-submit`` in cluster mode, found by tag, one attempt each.

YARN does not start a driver again (``spark.yarn.maxAppAttempts=1``): callers do, as everywhere. A driver that
was killed through the ResourceManager may live on for seconds, so that is no end; the lease is.
"""

from __future__ import annotations

import logging
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from airflow_flinkstyle.jobs.deployments.base import (
    CLAIM,
    Alive,
    DriverPages,
    DriverPending,
    DriverState,
    Gone,
    Unknown,
)
from airflow_flinkstyle.jobs.deployments.refusals import not_taken, why_final
from airflow_flinkstyle.jobs.deployments.rest import (
    NoAnswerError,
    NotDeliveredError,
    StateCache,
    both_ends,
)
from airflow_flinkstyle.jobs.deployments.room import of_yarn
from airflow_flinkstyle.jobs.deployments.yarn.managers import Managers
from airflow_flinkstyle.jobs.deployments.yarn.submitting import command_line
from airflow_flinkstyle.jobs.packing import require_agent
from airflow_flinkstyle.kafka.login.driver import scrub

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.errors import DriverFailedError
    from airflow_flinkstyle.jobs.placement import Room
    from airflow_flinkstyle.jobs.spec import Submission
    from airflow_flinkstyle.jobs.target import SubmitTarget
    from airflow_flinkstyle.protocol.records import IncarnationRecord

_TAG: Final = "flinkstyle-"
_LIVING = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
_QUEUED = "ACCEPTED"
_APPLICATION = re.compile(r"\bapplication_\d+_\d+\b")
_EXITED = re.compile(r"exitCode:\s*\d+")
"""A node has reported the exit of the driver's process; a lost node reports none, or a negative one."""
_SUBMIT_TIMEOUT_S = 600.0
_SHOWN_LINES = 15
_LOG_BYTES = 64 << 10
log = logging.getLogger(__name__)


class YarnDeployment:
    """A driver is one application with one attempt."""

    name = "yarn"
    binds_claims = True

    def __init__(self, target: SubmitTarget) -> None:
        """Prepare.

        Args:
            target: ``cluster_url`` names the ResourceManagers' web addresses, separated by commas; without
                it they stand in the ``yarn-site.xml`` of ``HADOOP_CONF_DIR``.
        """
        self._target, self._managers = target, Managers(target)
        self._states = StateCache()

    def require_able(self) -> None:
        """Start drivers from anywhere: they end with nothing of this host.

        Raises:
            BadInputError, ClusterLoginError: If YARN would not tell this process what becomes of them, or
                this package is not here as a whole.
        """
        require_agent()
        self._managers.require_let_in()

    def submit(self, submission: Submission) -> Mapping[str, str]:
        """Let ``spark-submit`` hand the driver over, and return once YARN has accepted it.

        Raises:
            DriverFailedError: If it did not, and YARN knows of no such application.
        """
        tag = _tag(submission)
        with tempfile.TemporaryDirectory(prefix="flinkstyle-submit-") as folder:  # of this user only
            try:
                done = subprocess.run(  # noqa: S603 - argv is built by submit_argv, no shell
                    command_line(self._target, submission, tag, Path(folder)),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    env=dict(submission.submitter_env),
                    cwd=submission.cwd,
                    timeout=_SUBMIT_TIMEOUT_S,
                )
                said, code = done.stdout, done.returncode
            except subprocess.TimeoutExpired:
                said, code = f"spark-submit did not end within {_SUBMIT_TIMEOUT_S:g} s", 1
            except OSError as error:
                raise _failed(f"{submission.argv[0]} could not be run: {error}") from error
        tail = "\n".join(scrub(said, submission.env).splitlines()[-_SHOWN_LINES:])
        if code == 0 and (named := _APPLICATION.search(said)):
            log.info("Submitted driver %s", named[0])
            return {"application": named[0], "tag": tag}
        try:
            found = self._tagged(tag)
        except (NotDeliveredError, NoAnswerError) as error:
            log.warning("Whether a driver was submitted is unknown: %s; spark-submit said: %s", error, tail)
            return {"application": "", "tag": tag}
        if found is None:
            raise _failed(f"spark-submit ended with exit code {code}:\n{tail}\n", said=said)
        return {"application": str(found["id"]), "tag": tag}

    def find(self, submission: Submission) -> Mapping[str, str] | None:
        """Look for a living application with the tag of the submission's claim."""
        tag = _tag(submission)
        try:
            found = self._tagged(tag)
        except (NotDeliveredError, NoAnswerError):
            return None
        return None if found is None else {"application": str(found["id"]), "tag": tag}

    def native_id(self, record: IncarnationRecord) -> Mapping[str, str]:
        """Return the application that the driver says it is."""
        return {"application": record.cluster_id, "said_by": "driver"}

    def state(self, native_id: Mapping[str, str]) -> DriverState:
        """Return what the ResourceManager says of the application."""
        name = native_id.get("application") or native_id.get("tag", "")
        return self._states.state(name, lambda: self._look(native_id)) if name else Unknown("it has no id")

    def end(self, native_id: Mapping[str, str]) -> DriverState:
        """Kill the application; only one that a caller submitted. What was killed may run on for seconds."""
        state = self.state(native_id)
        if isinstance(state, Gone):
            return state
        if native_id.get("said_by"):  # who can write its record could name any application of the cluster
            return Unknown("only what a caller submitted is killed")
        try:
            app = self._app(native_id) or {}
        except (NotDeliveredError, NoAnswerError) as error:
            return Unknown(str(error))
        application = str(app.get("id") or "")  # of one whose submission was not answered, its tag tells it
        if not application:
            return state
        for said in self._managers.tell(f"apps/{quote(application, safe='')}/state", {"state": "KILLED"}):
            log.info("Asked YARN to kill %s: %s", application, said)
        killed = {**native_id, "application": application}
        return self._states.until_ended(application, lambda: self.state(killed))

    def log_tail(self, native_id: Mapping[str, str], *, lines: int = 30) -> str:
        """Return the end of what the driver wrote, from its node; where that is, if the node is silent."""
        try:
            app = self._app(native_id) or {}
        except (NotDeliveredError, NoAnswerError) as error:
            return f"(not readable from here: {error})"
        place = str(app.get("amContainerLogs") or "")
        parts = urlsplit(place).path.split("/")
        said = str(app.get("diagnostics") or "").strip()
        if len(parts) > 3 and parts[2] == "containerlogs":  # /node/containerlogs/<id>/<user>
            url = f"{place.split('/node/')[0]}/ws/v1/node/containers/{parts[3]}/logs"
            try:
                ends = [
                    self._managers.read(f"{url}/{kind}?size=-{_LOG_BYTES}") for kind in ("stdout", "stderr")
                ]
            except (NotDeliveredError, NoAnswerError) as error:
                said = f"(not readable from here: {error}; its page: {place})\n{said}"
            else:
                return both_ends(_contents(ends[0]), _contents(ends[1]), lines)
        return "\n".join(said.splitlines()[-lines:])

    def room(self) -> Room | None:
        """Return what the queue may still take, as the ResourceManager tells."""
        queue = self._target.conf.get("spark.yarn.queue") or "default"
        try:
            return of_yarn(self._managers.ask("metrics"), self._managers.ask("scheduler"), queue)
        except NoAnswerError as error:
            log.info("How much room there is cannot be read from here: %s", error)
            return None

    def pages(self, native_id: Mapping[str, str]) -> DriverPages:
        """Return the application's page, its log at its node, and Spark's pages as YARN passes them on."""
        url, application = next(self._managers.urls(), None), native_id.get("application")
        if not url or not application:
            return DriverPages()
        try:
            app = self._app(native_id)
            if app is None:
                return DriverPages()
            log_page = str(app.get("amContainerLogs") or "")
        except (NotDeliveredError, NoAnswerError):
            log_page = ""
        return DriverPages(
            cluster=f"{url}/cluster/app/{application}", log=log_page, spark_ui=f"{url}/proxy/{application}/"
        )

    def _look(self, native_id: Mapping[str, str]) -> DriverState:
        try:
            app = self._app(native_id)
        except (NotDeliveredError, NoAnswerError) as error:
            return Unknown(str(error))
        if app is None:
            return Unknown("the ResourceManager does not know it, or not as this run's driver")
        state, said = app.get("state"), str(app.get("diagnostics"))
        if state == _QUEUED:
            return DriverPending(
                f"YARN has not given it a container in queue {app.get('queue')}: {said.strip()}"
            )
        if state in _LIVING:
            return Alive()
        if state == "FINISHED" or (state == "FAILED" and _EXITED.search(said)):
            return Gone()
        return Unknown(f"YARN says {state}, which does not end its process")

    def _app(self, native_id: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Return the application, if it bears the tag of the claim: who can write records could name any."""
        application, tag = native_id.get("application"), _tag_of(native_id.get(CLAIM) or "")
        if not application:
            return self._tagged(tag)
        said = self._managers.ask(f"apps/{quote(application, safe='')}")
        app = said.get("app")
        return app if isinstance(app, dict) and tag in _tags(app) else None

    def _tagged(self, tag: str) -> Mapping[str, Any] | None:
        """Return the newest living application with a tag."""
        said = self._managers.ask(f"apps?applicationTags={quote(tag, safe='')}")
        apps = [app for app in (said.get("apps") or {}).get("app", ()) if app.get("state") in _LIVING]
        return max(apps, key=lambda app: app.get("startedTime", 0), default=None)


def _tags(app: Mapping[str, Any]) -> list[str]:
    return [tag.strip().lower() for tag in str(app.get("applicationTags") or "").split(",")]


def _tag(submission: Submission) -> str:
    """Return the tag of a generation's drivers."""
    return _tag_of(submission.marker[submission.marker.index("--claim") + 1])


def _tag_of(claim_id: str) -> str:
    return f"{_TAG}{claim_id}".lower()  # YARN keeps tags in lower case


def _contents(page: str) -> str:
    """Return what a driver wrote, without what the node puts around it."""
    _, found, after = page.partition("\nLogContents:\n")
    return (after if found else page).partition("\nEnd of LogType:")[0]


def _failed(found: str, *, said: str | None = None) -> DriverFailedError:
    """Build the error for a driver that YARN did not accept."""
    remedy = "Correct the Spark connection or Hadoop's settings (HADOOP_CONF_DIR), and try again."
    return not_taken(found, by="YARN", remedy=remedy, why=why_final(said or found))
