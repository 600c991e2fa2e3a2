"""Drivers on YARN: submitted by ``spark-submit`` in cluster mode, found by tag, one attempt each.

YARN does not start a driver again (``spark.yarn.maxAppAttempts=1``): callers do, as everywhere. A driver that
was killed through the ResourceManager may live on for seconds, so only the lease proves its end.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote, urlsplit

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments import spark_submit
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
    HttpRefusedError,
    KerberosLogin,
    NoAnswerError,
    NoGssapiError,
    NotDeliveredError,
    NoTicketError,
    StateCache,
    as_object,
    both_ends,
    read,
)
from airflow_flinkstyle.jobs.deployments.room import of_yarn
from airflow_flinkstyle.jobs.errors import ClusterLoginError
from airflow_flinkstyle.jobs.packing import PY_FILES, DriverAgent, HandOver, pack_agent, require_agent

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.jobs.deployments.base import Submission
    from airflow_flinkstyle.jobs.deployments.room import Room
    from airflow_flinkstyle.jobs.errors import DriverFailedError
    from airflow_flinkstyle.protocol.records import IncarnationRecord

YARN_ATTEMPTS: Final = "spark.yarn.maxAppAttempts"
KEYTAB: Final = "spark.kerberos.keytab"
PRINCIPAL: Final = "spark.kerberos.principal"
TAGS: Final = "spark.yarn.tags"
_WAIT_FOR_END: Final = "spark.yarn.submit.waitAppCompletion"
_DRIVER_ENV: Final = "spark.yarn.appMasterEnv."
_API: Final = "ws/v1/cluster"
_UNKNOWN: Final = '"exception":"NotFoundException"'
_NOT_LET_IN: Final = (401, 403)
_MANAGER: Final = "yarn.resourcemanager"
_TAG: Final = "flinkstyle-"
_LIVING = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
_QUEUED = "ACCEPTED"
_APPLICATION = re.compile(r"\bapplication_\d+_\d+\b")
_EXITED = re.compile(r"exitCode:\s*\d+")
"""A node has reported the exit of the driver's process; a lost node reports none, or a negative one."""
_LOG_BYTES = 64 << 10
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """YARN runs the driver."""

    how: ClassVar = HandOver(
        deploy_mode="cluster",
        submit_mode="cluster",
        uploads=True,
        # The driver's environment is among its settings, with its secrets.
        redacts=("spark[.]yarn[.]appMasterEnv[.]",),
    )

    agent: DriverAgent = field(default_factory=DriverAgent)
    cluster_url: str | None = None
    """Addresses of the ResourceManagers' pages, separated by commas; None for those of ``yarn-site.xml``."""
    proxy_user: str | None = None
    """The user as whom YARN runs the driver."""


class YarnDeployment:
    """A driver is one application with one attempt."""

    name = "yarn"
    binds_claims = True

    def __init__(self, own: Yarn, *, conf: Mapping[str, str]) -> None:
        """Prepare.

        Args:
            own: Where the ResourceManagers are, and as which user the driver runs.
            conf: Spark's settings: the queue, and the login.
        """
        self._own, self._managers = own, Managers(own, conf)
        self._queue = conf.get("spark.yarn.queue") or "default"
        self._states = StateCache()

    def require_able(self) -> None:
        """Start drivers from anywhere: they end with nothing of this host.

        Raises:
            BadInputError, ClusterLoginError: If YARN would not report their states to this process, or a part
                of this package is missing here.
        """
        require_agent()
        self._managers.require_let_in()

    def submit(self, submission: Submission) -> Mapping[str, str]:
        """Let ``spark-submit`` hand the driver over, and return once YARN has accepted it.

        Raises:
            DriverFailedError: If it did not, and YARN knows no such application.
        """
        tag = _tag(submission)
        with tempfile.TemporaryDirectory(prefix="flinkstyle-submit-") as folder:  # of this user only
            try:
                command = command_line(self._own, submission, tag, Path(folder))
                output, code = spark_submit.run(command, submission)
            except OSError as error:
                raise _failed(f"{submission.argv[0]} could not be run: {error}") from error
        tail = spark_submit.end_of(output, submission)
        if code == 0 and (named := _APPLICATION.search(output)):
            log.info("Submitted driver %s", named[0])
            return {"application": named[0], "tag": tag}
        try:
            found = self._tagged(tag)
        except (NotDeliveredError, NoAnswerError) as error:
            log.warning(
                "Whether a driver was submitted is unknown: %s; spark-submit printed: %s", error, tail
            )
            return {"application": "", "tag": tag}
        if found is None:
            raise _failed(f"spark-submit ended with exit code {code}:\n{tail}\n", output=output)
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
        """Return the application id that the driver recorded."""
        return {"application": record.cluster_id, "said_by": "driver"}

    def state(self, native_id: Mapping[str, str]) -> DriverState:
        """Return the application's state as the ResourceManager reports it."""
        name = native_id.get("application") or native_id.get("tag", "")
        return (
            self._states.state(name, lambda: self._query_state(native_id))
            if name
            else Unknown("it has no id")
        )

    def end(self, native_id: Mapping[str, str]) -> DriverState:
        """Kill the application; only one that a caller submitted. It may run on for seconds."""
        state = self.state(native_id)
        if isinstance(state, Gone):
            return state
        if native_id.get("said_by"):  # a forged record could name any application of the cluster
            return Unknown("only what a caller submitted is killed")
        try:
            app = self._app(native_id) or {}
        except (NotDeliveredError, NoAnswerError) as error:
            return Unknown(str(error))
        application = str(app.get("id") or "")  # a submission without an answer is found by its tag
        if not application:
            return state
        for answer in self._managers.put(f"apps/{quote(application, safe='')}/state", {"state": "KILLED"}):
            log.info("Asked YARN to kill %s: %s", application, answer)
        killed = {**native_id, "application": application}
        return self._states.until_ended(application, lambda: self.state(killed))

    def log_tail(self, native_id: Mapping[str, str], *, lines: int = 30) -> str:
        """Return the end of the driver's logs, from its node; where they are, if the node does not answer."""
        try:
            app = self._app(native_id) or {}
        except (NotDeliveredError, NoAnswerError) as error:
            return f"(not readable from here: {error})"
        place = str(app.get("amContainerLogs") or "")
        parts = urlsplit(place).path.split("/")
        diagnostics = str(app.get("diagnostics") or "").strip()
        if len(parts) > 3 and parts[2] == "containerlogs":  # /node/containerlogs/<id>/<user>
            url = f"{place.split('/node/')[0]}/ws/v1/node/containers/{parts[3]}/logs"
            try:
                ends = [
                    self._managers.read(f"{url}/{kind}?size=-{_LOG_BYTES}") for kind in ("stdout", "stderr")
                ]
            except (NotDeliveredError, NoAnswerError) as error:
                diagnostics = f"(not readable from here: {error}; its page: {place})\n{diagnostics}"
            else:
                return both_ends(_contents(ends[0]), _contents(ends[1]), lines)
        return "\n".join(diagnostics.splitlines()[-lines:])

    def room(self) -> Room | None:
        """Return what the queue may still take, from the ResourceManager."""
        try:
            return of_yarn(self._managers.ask("metrics"), self._managers.ask("scheduler"), self._queue)
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

    def _query_state(self, native_id: Mapping[str, str]) -> DriverState:
        try:
            app = self._app(native_id)
        except (NotDeliveredError, NoAnswerError) as error:
            return Unknown(str(error))
        if app is None:
            return Unknown("the ResourceManager does not know it, or not as this run's driver")
        state, diagnostics = app.get("state"), str(app.get("diagnostics"))
        if state == _QUEUED and app.get("amContainerLogs"):  # archives are brought there; it may run already
            return DriverPending("YARN prepares its container at a node", may_pass=True)
        if state == _QUEUED:
            return DriverPending(
                f"YARN has not given it a container in queue {app.get('queue')}: {diagnostics.strip()}"
            )
        if state in _LIVING:
            return Alive()
        if state == "FINISHED" or (state == "FAILED" and _EXITED.search(diagnostics)):
            return Gone()
        return Unknown(f"YARN reports {state}, which does not end its process")

    def _app(self, native_id: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Return the application if it has the tag of the claim: a forged record could name any."""
        application, tag = native_id.get("application"), _tag_of(native_id.get(CLAIM) or "")
        if not application:
            return self._tagged(tag)
        answer = self._managers.ask(f"apps/{quote(application, safe='')}")
        app = answer.get("app")
        return app if isinstance(app, dict) and tag in _tags(app) else None

    def _tagged(self, tag: str) -> Mapping[str, Any] | None:
        """Return the newest living application with a tag."""
        answer = self._managers.ask(f"apps?applicationTags={quote(tag, safe='')}")
        apps = [app for app in (answer.get("apps") or {}).get("app", ()) if app.get("state") in _LIVING]
        return max(apps, key=lambda app: app.get("startedTime", 0), default=None)


def _tags(app: Mapping[str, Any]) -> list[str]:
    return [tag.strip().lower() for tag in str(app.get("applicationTags") or "").split(",")]


def _tag(submission: Submission) -> str:
    """Return the tag of a generation's drivers."""
    return _tag_of(submission.marker[submission.marker.index("--claim") + 1])


def _tag_of(claim_id: str) -> str:
    return f"{_TAG}{claim_id}".lower()  # YARN keeps tags in lower case


def _contents(page: str) -> str:
    """Return a driver's log without the lines that the node adds around it."""
    _, found, after = page.partition("\nLogContents:\n")
    return (after if found else page).partition("\nEnd of LogType:")[0]


def _failed(found: str, *, output: str | None = None) -> DriverFailedError:
    """Build the error for a driver that YARN did not accept."""
    remedy = "Correct the Spark connection or Hadoop's settings (HADOOP_CONF_DIR), and try again."
    return not_taken(found, by="YARN", remedy=remedy, why=why_final(output or found))


def command_line(own: Yarn, submission: Submission, tag: str, folder: Path) -> list[str]:
    """Return the command line of ``spark-submit``; secrets are in a file that only this user can read.

    Args:
        own: As which user it runs, and how it finds this package.
        submission: Of the driver.
        tag: The tag by which its application is found.
        folder: Readable by this user only, for as long as ``spark-submit`` runs.
    """
    settings = {
        **{f"{_DRIVER_ENV}{name}": value for name, value in submission.env.items()},
        YARN_ATTEMPTS: "1",
        _WAIT_FOR_END: "false",
        TAGS: ",".join(filter(None, (submission.program.conf.get(TAGS, ""), tag))),
    }
    file = folder / "driver.properties"
    file.touch(mode=0o600)
    file.write_text(_defaults(submission) + "".join(_property(*item) for item in settings.items()))
    program, *rest = submission.argv
    rest = _without_conf(_without_conf(rest, TAGS), _WAIT_FOR_END)
    command = [program, "--properties-file", str(file)]
    if own.proxy_user:
        command += ["--proxy-user", own.proxy_user]
    if own.agent.way == PY_FILES and own.agent.path is None:
        rest = _with_py_file(rest, str(pack_agent(folder).archive))
    return command + rest


def _defaults(submission: Submission) -> str:
    """Return the settings that spark-submit reads if it is given no file."""
    env = submission.submitter_env
    home = Path(submission.argv[0]).parent.parent
    place = Path(env.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    return f"{place.read_text()}\n" if place.is_file() else ""


def _property(name: str, value: str) -> str:
    """Return a line of Java's properties."""
    kept = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    spaces = len(kept) - len(kept.lstrip(" "))
    encoded = "".join(sign if sign.isascii() else f"\\u{ord(sign):04x}" for sign in kept[spaces:])
    return name + "=" + "\\ " * spaces + encoded + "\n"


def _without_conf(options: list[str], name: str) -> list[str]:
    """Return a command line without a setting: there it would win over the file."""
    found = next((at for at, option in enumerate(options) if option.startswith(f"{name}=")), None)
    return options if found is None else options[: found - 1] + options[found + 1 :]


def _with_py_file(options: list[str], file: str) -> list[str]:
    if "--py-files" in options[: options.index("--root")]:
        at = options.index("--py-files") + 1
        return [*options[:at], f"{file},{options[at]}", *options[at + 1 :]]
    return ["--py-files", file, *options]


class Managers:
    """The ResourceManagers of a YARN cluster, leading or not, and its nodes."""

    def __init__(self, own: Yarn, conf: Mapping[str, str]) -> None:
        self._own = own
        self._login = KerberosLogin(conf.get(PRINCIPAL), conf.get(KEYTAB), acts_for=own.proxy_user)

    def urls(self) -> Iterator[str]:
        """Return the addresses of their pages: the connection's, or those of Hadoop's settings."""
        known = self._own.cluster_url
        for url in known.split(",") if known else manager_urls(os.environ):
            yield url.strip().rstrip("/")

    def require_let_in(self) -> None:
        """Refuse a caller that all of them refuse; one that does not answer counts as no refusal.

        Raises:
            BadInputError: If this host cannot use tickets.
            ClusterLoginError: If there is no ticket, or they do not accept it.
        """
        errors = []
        for answer in self._answers("info"):
            if not isinstance(answer, Exception):
                return
            errors.append(answer)
        for error in errors:
            if isinstance(error, NoGssapiError):
                raise BadInputError(
                    f"ResourceManagers that report a driver's state were expected, found that {error}.",
                    state_after="Nothing was started.",
                    remedy="Install airflow-flinkstyle[kerberos] where Airflow's workers and triggerers run.",
                )
            if isinstance(error, NoTicketError) or getattr(error, "code", 0) in _NOT_LET_IN:
                raise ClusterLoginError(
                    f"ResourceManagers that report a driver's state were expected, found that {error}.",
                    state_after="Nothing was started.",
                    remedy="Run `airflow kerberos` beside the workers and triggerers, or name principal and "
                    "spark.kerberos.keytab in the Spark connection; a proxy user needs hadoop.proxyuser.*.",
                )
        log.info("No ResourceManager answers: %s", "; ".join(map(str, errors)))

    def ask(self, path: str) -> Mapping[str, Any]:
        """Return the answer of the first one that answers.

        Raises:
            NoAnswerError: If none does, with each one's reason.
        """
        reasons = []
        for answer in self._answers(path):
            if not isinstance(answer, Exception):
                return answer
            reasons.append(str(answer))
        raise NoAnswerError("; ".join(reasons) or "no address of a ResourceManager is known")

    def put(self, path: str, body: Mapping[str, Any]) -> Iterator[str]:
        """Send a PUT request to each of them, and yield each answer, or why there is none."""
        user = self._own.proxy_user or os.environ.get("HADOOP_USER_NAME") or _user()
        for url in self.urls():
            address = f"{url}/{_API}/{path}?user.name={quote(user, safe='')}"
            try:
                yield read(address, method="PUT", body=body, login=self._login)
            except (NotDeliveredError, NoAnswerError) as error:
                yield f"no: {error}"

    def read(self, url: str) -> str:
        """Return a page of one of their nodes, as text; raises what ``rest.read`` does."""
        return read(url, login=self._login)

    def _answers(self, path: str) -> Iterator[Mapping[str, Any] | Exception]:
        """Yield the answer of each of them, or its error; empty for an application that it does not know."""
        for url in self.urls():
            address = f"{url}/{_API}/{path}"
            try:
                yield as_object(address, read(address, login=self._login))
            except HttpRefusedError as refusal:
                yield {} if _UNKNOWN in refusal.text else refusal
            except (NotDeliveredError, NoAnswerError) as error:
                yield error


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def manager_urls(env: Mapping[str, str]) -> list[str]:
    """Return the web addresses of the ResourceManagers that ``yarn-site.xml`` names, none without one.

    Args:
        env: Names the folder of Hadoop's settings.
    """
    found = _site(env)
    scheme, kind, port = ("http", "webapp", 8088)
    if found.get("yarn.http.policy") == "HTTPS_ONLY":
        scheme, kind, port = ("https", "webapp.https", 8090)
    ids = [f".{one.strip()}" for one in found.get(f"{_MANAGER}.ha.rm-ids", "").split(",") if one.strip()]
    urls = []
    for part in ids or [""]:
        host = found.get(f"{_MANAGER}.hostname{part}") or found.get(f"{_MANAGER}.hostname")
        address = found.get(f"{_MANAGER}.{kind}.address{part}") or (f"{host}:{port}" if host else "")
        urls += [f"{scheme}://{address}"] if address else []
    return urls


def _site(env: Mapping[str, str]) -> dict[str, str]:
    folder = env.get("YARN_CONF_DIR") or env.get("HADOOP_CONF_DIR")
    site = Path(folder) / "yarn-site.xml" if folder else None
    if site is None or not site.is_file():
        return {}
    root = ET.parse(site).getroot()  # noqa: S314 - the administrator's own file
    return {item.findtext("name", ""): item.findtext("value", "").strip() for item in root.iter("property")}
