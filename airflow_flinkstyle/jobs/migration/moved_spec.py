"""A job after its Kafka sources have moved: its overrides, by the servers that its script names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.protocol.records import KafkaOverride

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
    from airflow_flinkstyle.jobs.spec import JobSpec
    from airflow_flinkstyle.jobs.view import JobView

_SERVERS = "kafka.bootstrap.servers"


def renamed_topics(runs: JobView, kafka: LiveKafka) -> dict[str, str]:
    """Return topic -> topic on the target, for all that the run reads on the old cluster; {} if equal."""
    last = runs.board.current_heartbeat()
    old_id = kafka.old_cluster_id
    topics = {
        topic
        for query in (last.queries.values() if last is not None else ())
        for source in query.sources.values()
        if source.cluster_id == old_id
        for topic in source.topic_ids
    }
    renamed = {topic: ",".join(kafka.target_topics([topic])) for topic in sorted(topics)}
    return renamed if any(topic != new for topic, new in renamed.items()) else {}


def moved_spec(
    spec: JobSpec,
    *,
    old_servers: str,
    script_servers: str,
    options: Mapping[str, str],
    rename: Mapping[str, str] | None = None,
) -> JobSpec:
    """Return the job with its Kafka sources on other servers; moving it there again changes nothing.

    Args:
        spec: The job as it runs now, perhaps moved before.
        old_servers: Where it reads now.
        script_servers: The servers in its script, unless an override names them already.
        options: Set on the matching sources.
        rename: Topic that it reads now -> topic to read then.
    """
    rules, moved = [], False
    for rule in spec.overrides:
        reads_old = rule.options.get(_SERVERS) == old_servers or rule.servers == script_servers
        if rule.role == "source" and reads_old:
            rule, moved = (
                replace(
                    rule, options={**rule.options, **options}, rename=renamed_again(rule.rename, rename or {})
                ),
                True,
            )
        rules.append(rule)
    if not moved:
        rules.append(
            KafkaOverride(
                role="source", servers=script_servers, options=dict(options), rename=dict(rename or {})
            )
        )
    return replace(spec, overrides=tuple(rules))


def renamed_again(first: Mapping[str, str], then: Mapping[str, str]) -> dict[str, str]:
    """Return topic in the script -> topic to read, when topics that were renamed before are renamed again."""

    def renamed(names: str) -> str:
        return ",".join(dict.fromkeys(then.get(name, name) for name in names.split(",")))

    both = {topic: renamed(names) for topic, names in first.items()}
    reached = {name for names in first.values() for name in names.split(",")}
    both |= {topic: name for topic, name in then.items() if topic not in reached}
    return both if any(topic != names for topic, names in both.items()) else {}
