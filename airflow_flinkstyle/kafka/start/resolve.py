"""From start rules to concrete offsets, with a verdict per partition.

One round of requests per kind of start, however many partitions there are. Only shifts and timestamps
read records: those that they pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import (
    CLUSTER_MISMATCH,
    NOTHING_CHANGED,
    PartitionSetError,
    TopicRecreatedError,
)
from airflow_flinkstyle.kafka.groups import group_offsets
from airflow_flinkstyle.kafka.positions import require_partitions, validate_position
from airflow_flinkstyle.kafka.start.kinds import AtOffsets, AtTimestamp, Earliest, FromGroup, Latest, Shifted
from airflow_flinkstyle.kafka.start.shift import StartContext, at_timestamps, shifted
from airflow_flinkstyle.kafka.verdict import Refused
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import ids_differ

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.settings import Isolation, KafkaCluster
    from airflow_flinkstyle.kafka.start.kinds import Start, StartRules
    from airflow_flinkstyle.kafka.start.shift import Found
    from airflow_flinkstyle.kafka.verdict import Chosen, Verdict
    from airflow_flinkstyle.types import NextOffset, TopicPartition


def resolve(
    cluster: KafkaCluster,
    partitions: Collection[TopicPartition],
    rules: StartRules,
    *,
    before: Offsets | None = None,
    isolation: Isolation = "read_committed",
) -> dict[TopicPartition, Verdict]:
    """Return where each partition starts: ``Chosen``, or ``Refused`` with the reason.

    Args:
        cluster: Where the job will read.
        partitions: All live partitions of its topics.
        rules: Which start each takes; for these topics only (``StartRules.about``).
        before: The position so far **in the same log**; None if it counts in another one.
        isolation: The job's own. A read-committed job's latest lies before the first open transaction.

    Raises:
        TopicMissingError: If a topic does not exist.
        PartitionSetError: If these are not the live partitions, or a rule names one that is not.
        BadInputError: If a rule names a topic that is not among them.
        FlinkstyleError: ``CLUSTER_MISMATCH`` if a table's offsets count on another cluster.
        TopicRecreatedError: If they count in an older topic of that name.
        FlinkstyleError: ``GROUP_MISSING`` if a group does not exist.
    """
    topics = {topic for topic, _ in partitions}
    committed = {  # read before the logs' ends: a group at work may be past ends that were read earlier
        group: group_offsets(cluster, group, topics) for group in sorted(_groups(rules))
    }
    context = StartContext(
        cluster=cluster, view=describe(cluster, topics), before=before or Offsets(), isolation=isolation
    )
    require_partitions(partitions, context.view, str(cluster))
    require_known(rules, context.view, str(cluster))
    offsets = _start_offsets(context, {tp: rules.of(tp) for tp in partitions}, committed)
    return {tp: _verdict(offsets[tp], context, tp) for tp in sorted(partitions)}


def require_known(rules: StartRules, view: ClusterView, where: str) -> None:
    """Check that the rules name nothing that the view lacks, and that tables count in its logs.

    Raises:
        BadInputError: If a topic is not among those that are read.
        PartitionSetError: If a topic has no such partition.
        FlinkstyleError: ``CLUSTER_MISMATCH`` if a table's offsets count on another cluster.
        TopicRecreatedError: If they count in an older topic of that name.
    """
    named = rules.topics.keys() | {topic for topic, _ in rules.partitions}
    if unknown := sorted(named - view.topics.keys()):
        raise BadInputError(
            f"Start positions on {where} should be for the topics that the job reads "
            f"({', '.join(sorted(view.topics))}), but there are some for {', '.join(unknown)}.",
            state_after=NOTHING_CHANGED,
            remedy="Name the topics as they are called on the cluster where the job will read.",
        )
    tables = [start for start in rules.all if isinstance(start, AtOffsets)]
    listed = {
        tp for table in tables for tp in table.offsets if tp[0] in view.topics and rules.of(tp) is table
    }
    if absent := (rules.partitions.keys() | listed) - view.partitions:
        raise PartitionSetError.between(where, missing=(), unknown=absent)
    for tp in sorted(view.partitions):
        start = rules.of(tp)
        if isinstance(start, AtOffsets) and tp[0] in start.logs:
            _require_same_log(start, tp[0], view, where)


def _require_same_log(table: AtOffsets, topic: str, view: ClusterView, where: str) -> None:
    identity, live = table.logs[topic], view.topics[topic]
    if ids_differ(identity.cluster_id, view.cluster_id):
        raise CLUSTER_MISMATCH.error(
            what=f"The table of offsets ({table.origin})", expected=identity.cluster_id, found=view.cluster_id
        )
    if ids_differ(identity.topic_id, live.topic_id):
        raise TopicRecreatedError.between(where, topic, expected=identity.topic_id, found=live.topic_id)


def _groups(rules: StartRules) -> set[str]:
    return {start.group for start in rules.all if isinstance(start, FromGroup)}


def _start_offsets(
    context: StartContext,
    starts: Mapping[TopicPartition, Start | None],
    committed: Mapping[str, Offsets],
) -> Found:
    """Return every partition's offset; what needs the cluster is asked for all partitions together."""
    found: dict[TopicPartition, NextOffset | Refused] = {}
    dated: dict[TopicPartition, AtTimestamp] = {}
    moved: dict[TopicPartition, Shifted] = {}
    for tp, start in starts.items():
        match start:
            case None:
                found[tp] = Refused("no rule says where to start", None)
            case Earliest():
                found[tp] = context.log(tp).start
            case Latest():
                found[tp] = context.end(tp)
            case AtOffsets(offsets, origin):
                found[tp] = offsets.get(tp, Refused(f"the table ({origin}) has no offset for it", None))
            case FromGroup():
                found[tp] = _of_group(start, committed[start.group].get(tp), context, tp)
            case AtTimestamp():
                dated[tp] = start
            case Shifted():
                moved[tp] = start
    return {**found, **at_timestamps(context, dated), **shifted(context, moved)}


def _of_group(
    start: FromGroup, committed: NextOffset | None, context: StartContext, tp: TopicPartition
) -> NextOffset | Refused:
    if committed is not None:
        return committed
    match start.missing:
        case "refuse":
            return Refused(f"group {start.group} has committed no offset for it", None)
        case "earliest":
            return context.log(tp).start
        case "latest":
            return context.end(tp)


def _verdict(found: NextOffset | Refused, context: StartContext, tp: TopicPartition) -> Chosen | Refused:
    return (
        found
        if isinstance(found, Refused)
        else validate_position(found, context.log(tp), context.before.get(tp))
    )
