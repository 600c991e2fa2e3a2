"""A migration put together from connections and a form: what moves, from where, to where."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.launches import recorded_launch
from airflow_flinkstyle.hooks.rules import isolation_of, mirror_if_named, names_of
from airflow_flinkstyle.hooks.ways import savepoint_offsets, way_rules
from airflow_flinkstyle.jobs.cutover import PHASES, Cutover, CutoverSettings
from airflow_flinkstyle.jobs.errors import MigrationEndedError, StepTimeoutError
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.kafka_side import LiveKafka
from airflow_flinkstyle.jobs.preflight import run_preflight
from airflow_flinkstyle.jobs.producers import SwappedSwitch
from airflow_flinkstyle.jobs.report import build_report
from airflow_flinkstyle.jobs.requests import AS_IT_IS, DRAINED
from airflow_flinkstyle.kafka.driver_login import moved_options
from airflow_flinkstyle.kafka.errors import ClusterMismatchError
from airflow_flinkstyle.kafka.fences import parse_fence
from airflow_flinkstyle.kafka.policies import parse_policies
from airflow_flinkstyle.protocol.records import KafkaOverride
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.preflight import Preflight
    from airflow_flinkstyle.jobs.producers import ProducerSwitch
    from airflow_flinkstyle.jobs.spec import JobSpec

_SERVERS = "kafka.bootstrap.servers"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationForm:
    """What a person says about a migration; the operators' arguments by the same names."""

    job: str
    source_kafka_conn_id: str
    target_kafka_conn_id: str
    mirror: Mapping[str, Any] | None = None
    """``MirrorSettings`` by its fields' names; without aliases no position can be proved."""
    rename: Mapping[str, str] | None = None
    """Source topic -> target topic, or several with commas, beyond what the mirror's policy says."""
    way: str = "proved"
    """How sources move: ``proved``, ``new_identity`` or ``producers_first``."""
    start: str | Mapping[str, Any] | None = None
    """Where what begins anew begins, as ``kafka.start_text`` reads it."""
    topology: str = "refuse"
    """``repartitioned``: topics whose partitions do not fit one by one begin at ``start``."""
    sources: Mapping[str, Mapping[str, Any]] | None = None
    """``query/source`` -> any of ``way``, ``start``, ``topology``, where they differ."""
    fence: str | Mapping[str, Any] = "passive"
    """``acl``: producers are also kept away from the old topics by ACL; see ``kafka.fences.parse_fence``."""
    fence_spare: Sequence[str] | str = ()
    """Principals that an ``acl`` fence leaves alone."""
    group: str | None = None
    """Consumer group whose offsets on the target are set after the move."""
    isolation: str = "read_uncommitted"
    """The job's own ``kafka.isolation.level``; this is Spark's default."""
    allow: Sequence[str] | str = ("exact",)
    producer_switch: str | None = None
    script_servers: str | None = None
    """``kafka.bootstrap.servers`` as the script writes it; None: as the source's connection has it."""
    kafka_options: Mapping[str, str] | None = None
    """More options of Spark's Kafka source on the target; recorded, so no secrets."""
    timeouts: Mapping[str, float] | None = None
    """``CutoverSettings`` by its fields' names."""
    spark_conn_id: str | None = None
    """Where the next driver runs; None: where the job runs now."""
    back: bool = False
    """Producers know the two clusters by each other's names: it reverses an earlier migration."""


def live_kafka(hook: StreamingJobHook, form: MigrationForm) -> LiveKafka:
    """Return both clusters, and the rules between them."""
    old = hook.kafka(form.source_kafka_conn_id)
    return LiveKafka(
        old=old,
        new=hook.kafka(form.target_kafka_conn_id),
        mirror=mirror_if_named(form.mirror),
        rename=dict(form.rename or {}),
        isolation=isolation_of(form.isolation),
        allow=parse_policies(form.allow),
        ways=way_rules(
            way=form.way,
            start=form.start,
            topology=form.topology,
            sources=form.sources,
            savepoint=savepoint_offsets(hook.repository(form.job)),
        ),
        fence=parse_fence(form.fence, old, spare=names_of(form.fence_spare)),
    )


def producer_switch(hook: StreamingJobHook, form: MigrationForm) -> ProducerSwitch:
    """Return the switch as this migration calls its positions."""
    switch = hook.producer_switch(form.job, form.producer_switch)
    return SwappedSwitch(switch) if form.back else switch


def preflight(hook: StreamingJobHook, form: MigrationForm, *, savepoint_id: str | None = None) -> Preflight:
    """Look at everything a migration needs; with a savepoint also at what the job has not read yet."""
    kafka = live_kafka(hook, form)
    moved_options(kafka.new, form.kafka_options or {})  # refuses what no driver can log in with
    return run_preflight(
        hook.client(form.job),
        kafka,
        producer_switch(hook, form),
        target=hook.target(form.spark_conn_id) if form.spark_conn_id else None,
        manifest=hook.repository(form.job).read(savepoint_id) if savepoint_id else None,
    )


def cutover(
    hook: StreamingJobHook, form: MigrationForm, migration_id: str, *, hot_savepoint_id: str | None = None
) -> Cutover:
    """Return the window of a migration; every task, and every try of it, makes the same one."""
    client, kafka = hook.client(form.job), live_kafka(hook, form)
    journal = CutoverJournal(hook.store, form.job, migration_id, PHASES)
    stands_by = journal.result("standby") is not None  # then the old cluster may be gone
    spec, target = recorded_launch(client)
    if form.spark_conn_id:
        target = hook.target(form.spark_conn_id)
    return Cutover(
        client=client,
        journal=journal,
        switch=producer_switch(hook, form),
        kafka=kafka,
        spec=moved_spec(
            spec,
            old_servers=kafka.old.bootstrap_servers,
            script_servers=form.script_servers or kafka.old.bootstrap_servers,
            options=moved_options(kafka.new, form.kafka_options or {}),
            rename={} if stands_by else renamed_topics(client, kafka),
        ),
        target=target,
        hot_savepoint_id=hot_savepoint_id,
        settings=_settings(form.timeouts or {}),
        stop_mode=DRAINED if kafka.ways.drains else AS_IT_IS,
        group=str(form.group) if form.group else None,
    )


def renamed_topics(client: JobClient, kafka: LiveKafka) -> dict[str, str]:
    """Return topic -> topic on the target for all the current run reads on the old cluster; {} if equal."""
    current = client.board.current()
    slot = client.board.heartbeat(current.value.generation) if current else None
    old_id = kafka.old_cluster_id
    topics = {
        topic
        for beat in (slot.value.queries.values() if slot else ())
        for seen in beat.sources.values()
        if seen.cluster_id == old_id
        for topic in seen.topic_ids
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
        script_servers: What its script writes, unless a rule already says it.
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
    """Return what the script's names lead to when names that were renamed before are renamed again."""

    def led_on(names: str) -> str:
        return ",".join(dict.fromkeys(then.get(name, name) for name in names.split(",")))

    both = {topic: led_on(names) for topic, names in first.items()}
    reached = {name for names in first.values() for name in names.split(",")}
    both |= {topic: name for topic, name in then.items() if topic not in reached}
    return both if any(topic != names for topic, names in both.items()) else {}


def _settings(timeouts: Mapping[str, float]) -> CutoverSettings:
    known = {item.name for item in fields(CutoverSettings)}
    given = {name: float(value) for name, value in timeouts.items()}
    if wrong := sorted(set(given) - known):
        raise BadInputError(
            f"Time-outs among {sorted(known)} were expected, found {wrong}.",
            left="Nothing was changed.",
            remedy="Correct the operator's timeouts.",
        )
    return CutoverSettings(**given)


def verify_moved(moved: Cutover, *, timeout_s: float) -> dict[str, Any]:
    """Prove that the job runs on the target cluster, and commits what it finds there.

    Raises:
        MigrationEndedError: If the window has not ended on the target.
        ClusterMismatchError: If a query reads another cluster than the target.
        StepTimeoutError: If there is something to read and no batch comes.
    """
    client, kafka, journal = moved.client, moved.kafka, moved.journal
    if journal.result("running") is None:
        raise MigrationEndedError(
            f"Migration {journal.migration_id} was expected to have ended on the target, but it has not.",
            left="Nothing was changed.",
            remedy="Look at the task with the window, and at the one that settles it.",
        )
    report = build_report(client, journal)
    target_id = report.plan.target_cluster_id
    deadline = time.monotonic() + timeout_s
    while True:
        beat = client.wait_running(Generation(report.generation), timeout_s=timeout_s).heartbeat
        for ref in report.plan.sources:
            found = beat.queries[ref.query].sources[ref.source].cluster_id
            if found != target_id:
                raise ClusterMismatchError.between(
                    f"Source {ref.query}/{ref.source}", expected=target_id, found=found
                )
        batches = beat.batches()
        behind = [name for name, batch in report.plan.batches.items() if batches.get(name, -1) <= batch]
        if not behind or kafka.unread(client.repository.read(report.rewritten_id)) == 0:
            return {"cluster_id": target_id, "batches": batches, "generation": report.generation}
        if time.monotonic() > deadline:
            raise StepTimeoutError(
                f"Queries {behind} of job {report.job} were expected to commit a batch on the target within "
                f"{timeout_s:g} s.",
                left="The job has moved: it runs on the target, and producers write there.",
                remedy="Look at the driver's log; correct it there (UpgradeStreamingJobOperator).",
            )
        time.sleep(1.0)
