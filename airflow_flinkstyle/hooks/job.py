"""``StreamingJobHook``: the library's clients, made from Airflow connections."""

from __future__ import annotations

from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.hooks import aws, connections
from airflow_flinkstyle.hooks.errors import ConnectionMissingError
from airflow_flinkstyle.hooks.keys import asked_by
from airflow_flinkstyle.hooks.root_rights import require_dag
from airflow_flinkstyle.hooks.urls import NoUrl, manifest_url

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from airflow.sdk import Connection

    from airflow_flinkstyle.hooks.connections import Defaults
    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.deployments.base import Deployment
    from airflow_flinkstyle.jobs.migration.approved import ClusterRef, Migration
    from airflow_flinkstyle.jobs.migration.form_reader import LookUps
    from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
    from airflow_flinkstyle.jobs.migration.producers import ProducerSwitch
    from airflow_flinkstyle.jobs.request_slot import PendingRequest
    from airflow_flinkstyle.jobs.signing import Signer
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.jobs.status import Running, Starting
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.savepoint.files.verify import Level, Verified
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.savepoint.repository.summary import Summary
    from airflow_flinkstyle.savepoint.retention.dispose import Disposed, Protection
    from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
    from airflow_flinkstyle.savepoint.retention.prune import PruneReport
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.storage.breaker import Breaker
    from airflow_flinkstyle.storage.s3_settings import S3Settings
    from airflow_flinkstyle.types import Alignment

ANSWER_S = 5.0
"""How long a store may take to answer where others wait for the same threads."""


class StreamingJobHook(BaseHook):
    """Reads Airflow's connections, and returns clients that work with plain values.

    :param flinkstyle_conn_id: Connection of type ``flinkstyle``: savepoint root and defaults.
    :param breaker: For a store that many callers wait for: calls end within seconds, and while the store
        does not answer, none are made.
    :param team: Team whose connections are read, for the API server, where Airflow does not know it.
    """

    conn_name_attr = "flinkstyle_conn_id"
    default_conn_name = "flinkstyle_default"
    conn_type = "flinkstyle"
    hook_name = "Flinkstyle savepoints"

    def __init__(
        self,
        flinkstyle_conn_id: str = default_conn_name,
        *,
        breaker: Breaker | None = None,
        team: str | None = None,
    ) -> None:
        super().__init__()
        self.flinkstyle_conn_id = flinkstyle_conn_id
        self._breaker, self._team = breaker, team

    # --- connections --------------------------------------------------------------------------

    def _connection(self, conn_id: str) -> Connection:
        return connections.connection_of(conn_id, team=self._team)

    @cached_property
    def defaults(self) -> Defaults:
        """The settings of the ``flinkstyle`` connection.

        Raises:
            FlinkstyleError: ``ROOT_DENIED`` if the DAG of the task that this process runs may not act on that
                root.
        """
        defaults = connections.Defaults.of(self._connection(self.flinkstyle_conn_id))
        require_dag(defaults, self.flinkstyle_conn_id, asked_by().get("dag_id"))
        return defaults

    @cached_property
    def s3(self) -> S3Settings | None:
        """How the store is reached; None for a local one, or to use the environment's settings."""
        conn_id = self.defaults.aws_conn_id
        settings = aws.s3_settings(self._connection(conn_id)) if conn_id is not None else None
        if self._breaker is None:
            return settings
        from airflow_flinkstyle.storage.s3_settings import S3Settings

        return (settings or S3Settings()).impatient(ANSWER_S, breaker=self._breaker)

    @cached_property
    def signer(self) -> Signer:
        """Signs and verifies every record that starts a process; without a password it refuses."""
        return connections.signer(self._connection(self.flinkstyle_conn_id), self.defaults)

    @cached_property
    def secret_env(self) -> dict[str, str]:
        """The store's keys, or what to assume, as the driver's agent gets them."""
        conn_id = self.defaults.driver_aws_conn_id
        settings = aws.s3_settings(self._connection(conn_id)) if conn_id is not None else self.s3
        return {} if settings is None else aws.s3_environment(settings)

    @cached_property
    def store(self) -> ObjectStore:
        """The store at the savepoint root."""
        from airflow_flinkstyle.storage.open import open_store

        return open_store(self.defaults.savepoint_root, self.s3)

    def target(self, spark_conn_id: str) -> SubmitTarget:
        """Return where drivers run, from an apache-spark connection.

        Raises:
            BadInputError: If jobs may not use that connection.
        """
        connections.require_allowed(self.defaults, "spark", spark_conn_id)
        connection = self._connection(spark_conn_id)
        return connections.submit_target(connection, self.defaults, secret_env=self.secret_env)

    def kafka(self, conn_id: str) -> KafkaCluster:
        """Return the cluster of an apache-kafka connection.

        Raises:
            BadInputError: If jobs may not use that connection.
        """
        connections.require_allowed(self.defaults, "kafka", conn_id)
        return connections.kafka_cluster(self._connection(conn_id))

    def live_kafka(self, moving: Migration) -> LiveKafka:
        """Return both clusters of a migration, and the rules between them."""
        return moving.on(old=self._cluster(moving.source), new=self._cluster(moving.target))

    def _cluster(self, ref: ClusterRef) -> KafkaCluster:
        """Return a cluster; without a login where its connection is gone: no task fails for that alone."""
        try:
            return self.kafka(ref.conn_id)
        except ConnectionMissingError:
            self.log.warning("Connection %s is gone: %s is tried without a login", ref.conn_id, ref.servers)
            return ref.without_login()

    def look_ups(self) -> LookUps:
        """Return where to look up answers that a migration's form leaves open."""
        from airflow_flinkstyle.jobs.migration.form_reader import LookUps

        return LookUps.of(self.kafka, self.defaults.kafka_connections or ())

    def kafka_logins(self, conn_ids: Collection[str]) -> dict[str, str]:
        """Return the environment that brings a driver the logins of apache-kafka connections."""
        from airflow_flinkstyle.kafka.login import to_environment

        return to_environment([self.kafka(conn_id) for conn_id in sorted(conn_ids)])

    @cached_property
    def deployment(self) -> Deployment:
        """How drivers run: detached, on the machine of the task that starts them."""
        from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment

        store_env = aws.s3_environment(self.s3) if self.s3 is not None else {}
        return DetachedDeployment(
            may_end_with_starter=self.defaults.driver_may_end_with_worker,
            supervisor_env=store_env if self.defaults.supervise_drivers else None,
            class_archives=self.defaults.class_archives,
        )

    # --- one job ------------------------------------------------------------------------------

    def board(self, job: str) -> JobBoard:
        """Return the job's records."""
        from airflow_flinkstyle.protocol.board import JobBoard

        return JobBoard(self.store, job)

    def repository(self, job: str) -> SavepointRepository:
        """Return the job's savepoints."""
        from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

        return SavepointRepository(self.store, job)

    def client(self, job: str) -> JobClient:
        """Return the job's client."""
        from airflow_flinkstyle.jobs.client import JobClient
        from airflow_flinkstyle.jobs.view import JobView
        from airflow_flinkstyle.storage.open import open_as_hadoop

        return JobClient(
            view=JobView(
                board=self.board(job),
                repository=self.repository(job),
                deployment=self.deployment,
                signer=self.signer,
                secret_env=self.secret_env,
                open_checkpoint=partial(open_as_hadoop, s3=self.s3),
            ),
            kafka_logins=self.kafka_logins,
            asked_by=asked_by(),
        )

    def spec(
        self,
        job: str,
        script: str,
        *,
        args: Sequence[str] | str | None = None,
        conf: Mapping[str, Any] | str | None = None,
        env: Mapping[str, str] | None = None,
        overrides: Sequence[Mapping[str, Any]] = (),
        leave_checkpoints: Sequence[str] | str | None = (),
    ) -> JobSpec:
        """Return what to run.

        Args:
            job: The job's name.
            script: The PySpark script.
            args: Its arguments: a list, or one line as a shell would split it.
            conf: Spark settings, as a mapping or as JSON.
            env: The driver's environment.
            overrides: ``KafkaOverride`` rules as mappings.
            leave_checkpoints: Locations, as a list or as one line as a shell would split it.
        """
        from airflow_flinkstyle.hooks.launches import arguments, mapping
        from airflow_flinkstyle.jobs.spec import JobSpec
        from airflow_flinkstyle.kafka.login import require_no_secrets
        from airflow_flinkstyle.protocol.pulse import PULSES_VARIABLE
        from airflow_flinkstyle.protocol.records import KafkaOverride

        rules = tuple(KafkaOverride(**rule) for rule in overrides)
        for rule in rules:
            require_no_secrets(rule.options)
        return JobSpec(
            name=job,
            script=script,
            args=arguments(args),
            conf={n: connections.plain(value) for n, value in mapping(conf).items() if value is not None},
            env={**({PULSES_VARIABLE: "true"} if self.defaults.pulses else {}), **(env or {})},
            overrides=rules,
            checkpoint_root=self.defaults.checkpoint_root,
            lease_s=self.defaults.lease_s,
            leave_checkpoints=arguments(leave_checkpoints),
        )

    def look_after(self, job: str) -> Running | Starting:
        """Start a driver again that died, or was told to end, on any host; return the job's status.

        Raises:
            DriverFailedError: If it recorded why it failed.
            JobNotRunningError: If the job has stopped, or was never started.
        """
        from airflow_flinkstyle.jobs.errors import JobNotRunningError
        from airflow_flinkstyle.jobs.status import Running, Starting, describe_status

        client = self.client(job)
        status = client.drivers.look_after(follow=client.starts.follow)
        if isinstance(status, (Running, Starting)):
            return status
        raise JobNotRunningError(
            f"Job {job} was expected to run, found that {describe_status(status)}.",
            state_after="Nothing was started.",
            remedy="Start it with StartStreamingJobOperator.",
        )

    def look_for_end(self, job: str, generation: int | None) -> dict[str, Any] | None:
        """Return how a run's script has ended by itself, or None while it runs; keep it up as ``look_after``.

        Raises:
            DriverFailedError: If it recorded why it failed.
            JobNotRunningError: If it was stopped before its end, or the job was never started.
        """
        from airflow_flinkstyle.jobs.run_end import end_as_json, look_for_end

        return end_as_json(look_for_end(self.client(job).starts, generation))

    def ask_to_stop(self, job: str, request_key: str, *, started_by: str | None = None) -> None:
        """Ask for a stop at a batch boundary, also of a run that still starts, without waiting for it."""
        self.client(job).requests.ask_to_stop(request_key, started_by=started_by)

    # --- savepoints ---------------------------------------------------------------------------

    def begin_savepoint(
        self, job: str, key: str, *, timeout_s: float, alignment: Alignment = "none"
    ) -> PendingRequest | Manifest:
        """Ask the driver for a savepoint, or take one at once if the job has ended."""
        from airflow_flinkstyle.hooks.progress import ProgressLog

        return self.client(job).requests.begin_savepoint(
            key,
            timeout_s=timeout_s,
            alignment=alignment,
            progress=ProgressLog(self.log.info).captured,
        )

    def finish_savepoint(self, job: str, pending: PendingRequest, *, timeout_s: float) -> Manifest:
        """Wait for a savepoint asked for, and return it; one that died with its driver is asked for again."""
        from airflow_flinkstyle.hooks.progress import ProgressLog

        shown = ProgressLog(self.log.info)
        return self.client(job).requests.finish_savepoint(
            pending,
            timeout_s=timeout_s,
            watch=lambda _, progress: shown.reported(progress),
        )

    def newest_savepoint(self, job: str) -> Summary | None:
        """Return what a list shows of the newest savepoint of a job, in its own sequence."""
        from airflow_flinkstyle.savepoint.repository.summary import newest_summary

        return newest_summary(self.repository(job))

    def fresh_savepoint(self, job: str, max_age_s: float) -> Summary | None:
        """Return the newest savepoint if it is at most ``max_age_s`` old, and not known to be damaged."""
        from airflow_flinkstyle.savepoint.files.verified import why_stale

        newest = self.newest_savepoint(job)
        return newest if why_stale(self.repository(job), newest, max_age_s) is None else None

    def savepoint_url(self, job: str, savepoint_id: str) -> str | NoUrl:
        """Return the address of a savepoint's manifest for the extra link, or why there is none."""
        endpoint = self.s3.endpoint if self.s3 is not None else None
        return manifest_url(self.defaults.savepoint_root, endpoint, job, savepoint_id)

    # --- retention ----------------------------------------------------------------------------

    def verify_savepoint(self, job: str, savepoint_id: str, *, level: Level, by: str) -> Verified:
        """Check a savepoint, ``latest`` for the newest one, and record the result."""
        from airflow_flinkstyle.savepoint.files.verified import check_savepoint

        newest = self.newest_savepoint(job) if savepoint_id == "latest" else None
        wanted = newest.savepoint_id if newest is not None else savepoint_id
        return check_savepoint(self.repository(job), wanted, level=level, by=by)

    def prune_savepoints(
        self, job: str, policy: RetentionPolicy, *, by: str, dry_run: bool, wait_s: float
    ) -> PruneReport:
        """Dispose of what the policy does not keep and the job does not need."""
        from airflow_flinkstyle.jobs.retention import prune_job
        from airflow_flinkstyle.storage.open import open_as_hadoop

        return prune_job(
            self.board(job),
            self.repository(job),
            policy,
            holder=by,
            dry_run=dry_run,
            wait_s=wait_s,
            signer=self.signer,
            open_checkpoint=partial(open_as_hadoop, s3=self.s3),
        )

    def dispose_savepoint(
        self, job: str, savepoint_id: str, *, by: str, despite: Collection[Protection], wait_s: float
    ) -> Disposed:
        """Dispose of one savepoint unless something protects it."""
        from airflow_flinkstyle.jobs.retention import dispose_of

        return dispose_of(
            self.board(job), self.repository(job), savepoint_id, holder=by, despite=despite, wait_s=wait_s
        )

    # --- producers ----------------------------------------------------------------------------

    def producer_switch(self, job: str, switch: str | None = None) -> ProducerSwitch:
        """Return what holds and releases the producers of a job.

        Args:
            job: The job whose input they write.
            switch: ``store`` (a record in the savepoint root that producers poll), ``manual`` (people
                do it, and it is proved), or ``module:attribute``, a switch or a callable that makes one
                from this hook; None for the connection's setting.
        """
        from airflow_flinkstyle.jobs.migration.producers import simple_switch

        chosen = self.switch_name(switch)
        simple = simple_switch(chosen, self.store, job)
        if simple is not None:
            return simple
        loaded = load(chosen)
        made = loaded if hasattr(loaded, "apply") and not isinstance(loaded, type) else loaded(self)
        return made  # type: ignore[no-any-return]

    def switch_name(self, switch: str | None) -> str:
        """Return the name of the switch: the given one, else the connection's."""
        return switch or self.defaults.producer_switch or "manual"

    # --- the connection form's button ---------------------------------------------------------

    def test_connection(self) -> tuple[bool, str]:
        """List the savepoint root, for the Test button of the connection form."""
        from airflow_flinkstyle.storage.open import impatient

        try:
            next(iter(impatient(self.store, answer_s=ANSWER_S).list()), None)
        except FlinkstyleError as error:
            return False, str(error)
        return True, f"The savepoint root {self.store.uri} can be listed."


def load(path: str) -> Any:  # noqa: ANN401 - any attribute
    """Return an attribute of a module, a switch of producers.

    Raises:
        BadInputError: If there is none.
    """
    module, _, attribute = path.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInputError(
            f"A switch ('store', 'manual', 'module:attribute') was expected, found {path!r}: {error}.",
            state_after="No producer was held or released.",
            remedy="Name an importable attribute, with a colon between module and attribute.",
        ) from error
