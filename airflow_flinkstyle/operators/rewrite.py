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
    """Prove where a savepoint's positions stand on another cluster. Writes nothing.

    Returns the plan as JSON; the from/to table is in XCom ``markdown`` and in the log.

    :param savepoint_id: The savepoint to move. (templated)
    :param source_kafka_conn_id: Connection of type ``kafka``: the cluster it reads. (templated)
    :param target_kafka_conn_id: Connection of type ``kafka``: the cluster to move to. (templated)
    :param mirror: MirrorMaker 2's settings: ``source_alias``, ``target_alias``, and if they differ from
        the defaults ``connector_name``, ``offsets_topic``, ``replication_policy``, ``renamed``,
        ``isolation``. Without it, positions at the log's end are refused. (templated)
    :param rename: Source topic -> target topic, beyond what the mirror's policy says. (templated)
    :param isolation: The job's own ``kafka.isolation.level``. (templated)
    :param preview: Producers are at work: show where positions would go; no rewrite accepts that.
    :param fail_on_refusal: Fail if a partition has no safe offset; else only show it.
    """

    template_fields: Sequence[str] = (
        *StreamingJobOperator.template_fields,
        *("savepoint_id", "source_kafka_conn_id", "target_kafka_conn_id", "mirror", "rename", "isolation"),
    )

    def __init__(
        self,
        *,
        savepoint_id: str,
        source_kafka_conn_id: str,
        target_kafka_conn_id: str,
        mirror: Mapping[str, Any] | None = None,
        rename: Mapping[str, str] | None = None,
        isolation: str = "read_uncommitted",
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
        self.preview = preview
        self.fail_on_refusal = fail_on_refusal

    def execute(self, context: Context) -> str:
        """Translate with proof, show the table, and return the plan."""
        from airflow_flinkstyle.hooks.rules import proof_request
        from airflow_flinkstyle.rewrite import plan_json
        from airflow_flinkstyle.rewrite.errors import MovesRefusedError
        from airflow_flinkstyle.rewrite.translate_savepoint import Clusters, plan_translation

        with airflow_errors():
            hook = self.hook
            self.show_savepoint(context, self.savepoint_id)
            plan = plan_translation(
                hook.repository(self.job).read(self.savepoint_id),
                Clusters(
                    source=hook.kafka(self.source_kafka_conn_id), target=hook.kafka(self.target_kafka_conn_id)
                ),
                proof_request(
                    mirror=self.mirror, rename=self.rename, isolation=self.isolation, preview=self.preview
                ),
            )
            context["ti"].xcom_push(key=MARKDOWN_KEY, value=plan.as_markdown())
            self.log.info("Plan for savepoint %s:\n%s", self.savepoint_id, plan.as_markdown())
            if plan.refused and self.fail_on_refusal:
                raise MovesRefusedError.of(
                    f"{len(plan.refused)} partitions have no safe offset on the target",
                    plan.refused,
                    remedy="Read the reasons in the table; the job goes on as it was.",
                )
        return plan_json.to_json(plan)


class RewriteSavepointOffsetsOperator(SavepointMaker):
    """Apply a plan: write a new savepoint on the target cluster, whose parent is the old one.

    Returns the new savepoint's id. Doing it again gives the same savepoint.

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
        from airflow_flinkstyle.hooks.rules import plan_of
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
