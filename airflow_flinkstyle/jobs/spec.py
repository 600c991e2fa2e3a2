"""What to run (``JobSpec``), where (``SubmitTarget``), and the spark-submit command line that results."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from airflow_flinkstyle.errors import BadInputError, MessageFormatError
from airflow_flinkstyle.jobs.deployments.base import Program, Submission
from airflow_flinkstyle.jobs.secrets import (
    REDACTED_BY_SPARK,
    REDACTED_TOO,
    require_no_secrets,
    settings_within,
)
from airflow_flinkstyle.jobs.signing import KEY_VARIABLE, PREVIOUS_VARIABLE
from airflow_flinkstyle.jobs.target import SubmitTarget as SubmitTarget
from airflow_flinkstyle.jobs.target import record_of, require_no_relaunch_by_cluster, target_of
from airflow_flinkstyle.kafka.login import named_connections
from airflow_flinkstyle.protocol import driver_log
from airflow_flinkstyle.protocol.board import CHECKPOINTS, check_job_name
from airflow_flinkstyle.protocol.records import KafkaOverride
from airflow_flinkstyle.storage.keys import file_path, hadoop_location
from airflow_flinkstyle.storage.s3_login import role_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow_flinkstyle.types import Generation

_S3A: Final = "spark.hadoop.fs.s3a."
PROVIDER: Final = f"{_S3A}aws.credentials.provider"
REGION: Final = f"{_S3A}endpoint.region"
_HADOOP: Final = "org.apache.hadoop.fs.s3a."
_KEYS_OR_MACHINE: Final = (
    f"{_HADOOP}TemporaryAWSCredentialsProvider",
    f"{_HADOOP}SimpleAWSCredentialsProvider",
    f"{_HADOOP}auth.IAMInstanceCredentialsProvider",
)
_SDK_1: Final = re.compile(r"hadoop-(?:aws|client-api)[-:](?:2\.|3\.[0-3](?:\D|$))")
"""Hadoop before 3.4 has the first AWS SDK for Java, whose classes have other names."""


def has_first_sdk(names: Iterable[str]) -> bool:
    """Return whether S3A has the first AWS SDK for Java, by names of jars and packages; else the second."""
    return any(_SDK_1.search(name) for name in names)


def s3a_conf(env: Mapping[str, str], *, first_sdk: bool) -> dict[str, str]:
    """Return the settings with which S3A uses the role or login of the driver's environment; none for keys.

    Args:
        env: The driver's environment.
        first_sdk: Whether S3A has the first AWS SDK for Java.
    """
    role = role_of(env)
    own = _own_provider(env, first_sdk=first_sdk)
    if role is None:
        return {} if own is None else {PROVIDER: own}
    conf = {
        "aws.credentials.provider": f"{_HADOOP}auth.AssumedRoleCredentialProvider",
        "assumed.role.arn": role.arn,
        "assumed.role.session.name": role.session_name,
        "assumed.role.external.id": role.external_id,
        "assumed.role.session.duration": f"{role.duration_s}s" if role.duration_s else None,
        "assumed.role.sts.endpoint": _host(role.sts_endpoint),
        "assumed.role.sts.endpoint.region": env.get("AWS_REGION") if role.sts_endpoint else None,
        "assumed.role.credentials.provider": own or ",".join(_KEYS_OR_MACHINE),
    }
    return {f"{_S3A}{name}": value for name, value in conf.items() if value}


def _host(endpoint: str | None) -> str | None:
    """Return the host of an endpoint: S3A always puts https before it."""
    return urlsplit(endpoint).netloc or endpoint if endpoint else None


def _own_provider(env: Mapping[str, str], *, first_sdk: bool) -> str | None:
    """Return the class for a login that S3A's default chain does not find; None if it finds it."""
    if env.get("AWS_ACCESS_KEY_ID"):
        return None
    if env.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        if first_sdk:
            return "com.amazonaws.auth.WebIdentityTokenCredentialsProvider"
        return "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider"
    if env.get("AWS_PROFILE"):
        if first_sdk:
            return "com.amazonaws.auth.profile.ProfileCredentialsProvider"
        return "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
    return None


DEFAULT_LEASE_S = 30.0
_REDACTION = "spark.redaction.regex"
_OWN_PY_FILES = "spark.submit.pyFiles"
_STRIPPED = (
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "SPARK_HOME",
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
)


def default_checkpoint_root(savepoint_root: str) -> str:
    """Return where checkpoints are by default: beside the jobs, under Spark's scheme."""
    place = file_path(savepoint_root) or hadoop_location(savepoint_root)
    return f"{place.rstrip('/')}/{CHECKPOINTS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One version of a job: the user's script and how to call it."""

    name: str
    """Unique under a savepoint root."""
    script: str
    """Path of the PySpark script, as the driver sees it; or an address from which Spark fetches it
    (``s3a://``, ``hdfs://``, ``https://``); or ``-m``: then ``args`` begins with a module."""
    args: tuple[str, ...] = ()
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark settings of this job; they win over the target's."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of the driver. Recorded in the store: no secrets here."""
    overrides: tuple[KafkaOverride, ...] = ()
    checkpoint_root: str
    """Each generation has a folder of its own for its checkpoints below it (``s3a://...`` or a path)."""
    lease_s: float = DEFAULT_LEASE_S
    """How long a driver may go unconfirmed before it ends itself and another may take its place."""

    leave_checkpoints: tuple[str, ...] = ()
    """Locations of plain Spark's checkpoints that this one start leaves behind: recorded in its claim, but
    not in the launch that later starts repeat."""

    def __post_init__(self) -> None:
        """Refuse a spec that cannot run."""
        check_job_name(self.name)
        for what, value in (("script", self.script), ("checkpoint root", self.checkpoint_root)):
            if not value:
                raise BadInputError(
                    f"A {what} was expected for job {self.name}, found none.",
                    state_after="Nothing was started.",
                    remedy=f"Give the {what}.",
                )
        if self.script == "-m" and not self.args:
            raise BadInputError(
                f"The name of a module was expected behind -m for job {self.name}, found no argument.",
                state_after="Nothing was started.",
                remedy="Give script='-m' and args=['package.module', ...]; or give the path of a script.",
            )
        if self.lease_s <= 0:
            raise BadInputError(
                f"A lease of more than 0 s was expected for job {self.name}, found {self.lease_s}.",
                state_after="Nothing was started.",
                remedy="Give lease_s in seconds, for example 30.",
            )

    def checkpoint_location(self, generation: Generation, claim_id: str) -> str:
        """Return where a generation with a checkpoint of its own keeps it.

        It contains the claim, since a job of this name under another root, or one that was deleted, may have
        had these generations too.
        """
        return f"{self.checkpoint_root.rstrip('/')}/{self.name}/{generation:06d}-{claim_id[:8]}"


def require_recordable(spec: JobSpec, target: SubmitTarget) -> None:
    """Refuse a launch with secrets, which a claim would record and a command line would show.

    Also one whose drivers a cluster would start again by itself.

    Raises:
        BadInputError: Naming the settings.
    """
    if target.is_remote:
        require_no_relaunch_by_cluster({**target.conf, **spec.conf})
    require_no_secrets(f"the conf of job {spec.name}", spec.conf)
    require_no_secrets(f"the env of job {spec.name}", spec.env)
    require_no_secrets("the conf of the Spark connection", target.conf)
    require_no_secrets(
        "spark-application of the Spark connection", settings_within(record_of(target)["application"])
    )


def launch_of(spec: JobSpec, target: SubmitTarget) -> dict[str, Any]:
    """Return what a claim records, so that any caller can start one more incarnation; no secrets."""
    what = {name: value for name, value in asdict(spec).items() if name != "leave_checkpoints"}
    return {"spec": what, "target": record_of(target)}


def from_launch(launch: Mapping[str, Any], *, secret_env: Mapping[str, str]) -> tuple[JobSpec, SubmitTarget]:
    """Read a claim's launch back.

    Raises:
        MessageFormatError: If it is not what ``launch_of`` writes.
    """
    try:
        spec = dict(launch["spec"])
        spec["args"] = tuple(spec["args"])
        spec["overrides"] = tuple(KafkaOverride(**rule) for rule in spec["overrides"])
        return JobSpec(**spec), target_of(dict(launch["target"]), secret_env=secret_env)
    except (KeyError, TypeError) as error:
        raise MessageFormatError(
            f"A claim's launch with a job spec and a submit target was expected, found a fault at {error}.",
            state_after="Nothing was started.",
            remedy="Start the job again with StartStreamingJobOperator.",
        ) from error


def program_of(
    spec: JobSpec,
    target: SubmitTarget,
    *,
    root: str,
    generation: Generation,
    claim_id: str,
    digest: str = "",
    submit: int = 0,
    env: Mapping[str, str],
) -> Program:
    """Return what Spark runs for one driver with this environment."""
    conf, where = _conf(spec, target, env), target.deployment
    own_files = filter(None, conf.pop(_OWN_PY_FILES, "").split(","))
    fetched = (spec.script,) if _has_address(spec.script) else ()
    arguments = [*_marker(spec, root, generation, claim_id), "--submit", str(submit)]
    arguments += ["--digest", digest] if digest else []
    arguments += ["--", _script_argument(spec.script), *spec.args]
    return Program(
        conf=conf,
        application=where.how.launcher(where.agent),
        arguments=tuple(arguments),
        py_files=(*own_files, *where.how.py_files(where.agent), *fetched),
        jars=target.jars,
        packages=target.packages,
    )


def submit_argv(program: Program, target: SubmitTarget, *, name: str) -> tuple[str, ...]:
    """Return the spark-submit command line that runs a program."""
    mode = target.deployment.how.submit_mode
    argv = [target.spark_submit, "--master", target.master, "--deploy-mode", mode, "--name", name]
    for setting, value in sorted(program.conf.items()):
        argv += ["--conf", f"{setting}={value}"]
    files = (
        ("--py-files", program.py_files),
        ("--jars", program.jars),
        ("--packages", program.packages),
    )
    for option, values in files:
        argv += [option, ",".join(values)] if values else []
    return (*argv, program.application, *program.arguments)


def _conf(spec: JobSpec, target: SubmitTarget, env: Mapping[str, str]) -> dict[str, str]:
    """Return the driver's settings; Spark's plans must not show its logins to Kafka."""
    conf = {**target.conf, **spec.conf}
    if region := target.secret_env.get("AWS_REGION"):  # the connection's: S3A does not read it there
        conf.setdefault(REGION, region)
    if PROVIDER not in conf:
        conf = {**s3a_conf(env, first_sdk=has_first_sdk(_jars(target, conf))), **conf}
    hidden = [REDACTED_TOO] if named_connections(rule.options for rule in spec.overrides) else []
    hidden += target.deployment.how.redacts
    if hidden:
        conf[_REDACTION] = "|".join([conf.get(_REDACTION, REDACTED_BY_SPARK), *hidden])
    return conf


def _jars(target: SubmitTarget, conf: Mapping[str, str]) -> Iterator[str]:
    """Yield names that may show the version of S3A: of jars and packages, those given and Spark's."""
    yield from (*target.jars, *target.packages, *conf.values())
    home = Path(target.spark_home) if target.spark_home else None
    folders = [home / "jars"] if home else Path(target.python).parents[1].glob("lib/python*/*/pyspark/jars")
    for folder in folders:
        yield from (path.name for path in folder.glob("hadoop-*.jar"))


def _script_argument(script: str) -> str:
    """Return the launcher's argument for the script: its path, or the name under which Spark fetches it."""
    return script.rpartition("/")[2] if _has_address(script) else script.removeprefix("local:")


def _has_address(script: str) -> bool:
    return urlsplit(script).scheme not in ("", "local")


def _marker(spec: JobSpec, root: str, generation: Generation, claim_id: str) -> tuple[str, ...]:
    return ("--root", root, "--job", spec.name, "--claim", claim_id, "--generation", str(generation))


def driver_env(spec: JobSpec, target: SubmitTarget, base: Mapping[str, str]) -> dict[str, str]:
    """Return the driver's environment: the caller's without Airflow's and its Python's own variables.

    A driver on a cluster gets none of the caller's: that machine is another one. The signing key is never
    included: no driver can start another one.
    """
    env = {} if target.is_remote else _of_this_machine(target, base)
    env["PYSPARK_PYTHON"] = env["PYSPARK_DRIVER_PYTHON"] = target.python
    given = {name for name, value in target.secret_env.items() if value}
    removed = {*(target.secret_env.keys() - given), KEY_VARIABLE, PREVIOUS_VARIABLE}
    env = {name: value for name, value in {**env, **spec.env}.items() if name not in removed}
    return {**env, **{name: target.secret_env[name] for name in given}}


def _of_this_machine(target: SubmitTarget, base: Mapping[str, str]) -> dict[str, str]:
    env = {
        name: value
        for name, value in base.items()
        if not name.startswith(("AIRFLOW", "_AIRFLOW", "__AIRFLOW")) and name not in _STRIPPED
    }
    env["PATH"] = f"{Path(target.python).parent}:{env.get('PATH', '/usr/bin:/bin')}"
    if target.spark_home:
        env["SPARK_HOME"] = target.spark_home
    return {name: value for name, value in env.items() if name not in (KEY_VARIABLE, PREVIOUS_VARIABLE)}


def submission_of(
    spec: JobSpec,
    target: SubmitTarget,
    *,
    root: str,
    root_id: str,
    generation: Generation,
    claim_id: str,
    base_env: Mapping[str, str],
    digest: str = "",
    submit: int = 0,
) -> Submission:
    """Put together one driver process; all incarnations of a generation append to one log."""
    env, name = driver_env(spec, target, base_env), f"{spec.name}-{generation}"
    program = program_of(
        spec,
        target,
        root=root,
        generation=generation,
        claim_id=claim_id,
        digest=digest,
        submit=submit,
        env=env,
    )
    return Submission(
        argv=submit_argv(program, target, name=name),
        marker=_marker(spec, root, generation, claim_id),
        env=env,
        cwd=target.working_dir,
        log_path=str(Path(target.log_dir) / driver_log.name_of(spec.name, root_id, generation, claim_id)),
        name=name,
        submitter_env=_of_this_machine(target, base_env) if target.is_remote else {},
        program=program,
    )
