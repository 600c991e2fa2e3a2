"""Plan the move of a savepoint to another Kafka cluster, and apply a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.operators.base import SavepointMaker, StreamingJobOperator, airflow_errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

MARKDOWN_KEY = "markdown"
"""XCom with the plan's table, for the approval task."""


class PlanOffsetRewriteOperator(StreamingJobOperator):
    """Find where a savepoint's positions are on another cluster, each source in its way. Writes nothing.

    Returns the plan as JSON; the from/to table is in XCom ``markdown`` and in the log. It needs no other
    task; in a migration use ``PlanMigrationOperator``, which also stores what is approved.

    :param savepoint_id: The savepoint to move. (templated)
    :param source_kafka_conn_id: Connection of type ``kafka``: the cluster it reads. None if that is gone:
        then only sources with a new identity can move. (templated)
    :param target_kafka_conn_id: Connection of type ``kafka``: the cluster to move to. (templated)
    :param mirror: MirrorMaker 2's settings: ``source_alias``, ``target_alias``, and if they differ from
        the defaults any other field of ``kafka.mirror.lag.MirrorSettings``. Without it, positions at the
        log's end are refused. (templated)
    :param rename: Source topic -> target topic, or several with commas, beyond the mirror's policy.
        (templated)
    :param isolation: The job's own ``kafka.isolation.level``. (templated)
    :param way: How sources move: ``proved``, ``new_identity`` or ``producers_first``. (templated)
    :param start: Where sources that drop their position begin, as ``kafka.start.text`` reads it. (templated)
    :param topology: ``repartitioned`` lets topics whose partitions do not fit begin at ``start``;
        ``refuse`` refuses them. (templated)
    :param sources: ``query/source`` -> any of ``way``, ``start``, ``topology``. (templated)
    :param preview: Producers still write: show where positions would go; no rewrite accepts such a plan.
    :param fail_on_refusal: Fail if a partition has no safe offset; else only show it.
    """

    template_fields: Sequence[str] = (
        *StreamingJobOperator.template_fields,
        *("savepoint_id", "source_kafka_conn_id", "target_kafka_conn_id", "mirror", "rename", "isolation"),
        *("way", "start", "topology", "sources"),
    )

    def __init__(
        self,
        *,
        savepoint_id: str,
        source_kafka_conn_id: str | None,
        target_kafka_conn_id: str,
        mirror: Mapping[str, Any] | None = None,
        rename: Mapping[str, str] | None = None,
        isolation: str = "read_uncommitted",
        way: str = "proved",
        start: str | Mapping[str, Any] | None = None,
        topology: str = "refuse",
        sources: Mapping[str, Mapping[str, Any]] | None = None,
        preview: bool = False,
        fail_on_refusal: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.savepoint_id = savepoint_id
        self.source_kafka_conn_id = source_kafka_conn_id
        self.target_kafka_conn_id = target_kafka_conn_id
        self.mirror = mirror
        self.rename = rename
        self.isolation = isolation
        self.way = way
        self.start = start
        self.topology = topology
        self.sources = sources
        self.preview = preview
        self.fail_on_refusal = fail_on_refusal

    def execute(self, context: Context) -> str:
        """Find every position, show the table, and return the plan."""
        from airflow_flinkstyle.jobs.answers.rules import proof_request, savepoint_offsets, strategy_rules
        from airflow_flinkstyle.rewrite.errors import moves_refused
        from airflow_flinkstyle.rewrite.route import ClusterPair
        from airflow_flinkstyle.rewrite.strategies import plan_migration

        with airflow_errors():
            hook, old = self.hook, self.source_kafka_conn_id
            repository = hook.repository(self.job)
            self.show_savepoint(context, self.savepoint_id)
            plan = plan_migration(
                repository.read(self.savepoint_id),
                ClusterPair(
                    source=hook.kafka(old) if old else None, target=hook.kafka(self.target_kafka_conn_id)
                ),
                proof_request(
                    mirror=self.mirror, rename=self.rename, isolation=self.isolation, preview=self.preview
                ),
                strategy_rules(
                    way=self.way,
                    start=self.start,
                    topology=self.topology,
                    sources=self.sources,
                    savepoint=savepoint_offsets(repository),
                ),
            )
            context["ti"].xcom_push(key=MARKDOWN_KEY, value=plan.as_markdown())
            self.log.info("Plan for savepoint %s:\n%s", self.savepoint_id, plan.as_markdown())
            if plan.refused and self.fail_on_refusal:
                raise moves_refused(
                    f"{len(plan.refused)} partitions have no safe offset on the target",
                    plan.refused,
                    remedy="Read the reasons in the table; the job keeps running.",
                )
        return plan.to_json()


class RewriteSavepointOffsetsOperator(SavepointMaker):
    """Apply a plan: write a new savepoint on the target cluster, whose parent is the old one.

    Returns the new savepoint's id. A second run returns the same savepoint.

    :param plan: What ``PlanOffsetRewriteOperator`` returned. (templated)
    :param target_kafka_conn_id: Connection of type ``kafka``: checked once more before the write. (templated)
    :param allow: Kinds of verdict that are good enough: ``exact``, ``bounded``, ``chosen``, or classes:
        ``duplicate<=100,superseded``. (templated)
    """

    template_fields: Sequence[str] = (
        *StreamingJobOperator.template_fields,
        *("plan", "target_kafka_conn_id", "allow"),
    )

    def __init__(
        self,
        *,
        plan: str | Mapping[str, Any],
        target_kafka_conn_id: str,
        allow: Sequence[str] | str = ("exact",),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.target_kafka_conn_id = target_kafka_conn_id
        self.allow = allow

    def execute(self, context: Context) -> str:
        """Check every precondition against the live cluster, write, and return the new id."""
        from airflow_flinkstyle.jobs.answers.rules import plan_of
        from airflow_flinkstyle.kafka.cluster import describe
        from airflow_flinkstyle.kafka.policies import parse_policies
        from airflow_flinkstyle.rewrite.apply import apply_plan

        with airflow_errors():
            hook = self.hook
            plan = plan_of(self.plan)
            repository = hook.repository(self.job)
            rewritten = apply_plan(
                plan,
                repository.read(plan.savepoint_id),
                repository,
                live=describe(hook.kafka(self.target_kafka_conn_id), tuple(plan.target.topics)),
                allow=parse_policies(self.allow),
            )
            self.show_savepoint(context, rewritten.savepoint_id)
        self.announce(context, rewritten.savepoint_id)
        self.log.info("Savepoint %s was rewritten as %s", plan.savepoint_id, rewritten.savepoint_id)
        return rewritten.savepoint_id
