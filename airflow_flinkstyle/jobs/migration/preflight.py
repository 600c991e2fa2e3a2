"""Check, before anything is held or stopped, whether a migration can work; changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.cutover.compat import spark_findings
from airflow_flinkstyle.jobs.cutover.steps import require_room
from airflow_flinkstyle.jobs.errors import PREFLIGHT
from airflow_flinkstyle.jobs.spec import from_launch
from airflow_flinkstyle.jobs.status import NeverStarted, Running, describe_status
from airflow_flinkstyle.kafka.cluster import describe, existing_topics
from airflow_flinkstyle.kafka.errors import ClusterDeniedError
from airflow_flinkstyle.kafka.fence.acls import EVERYBODY
from airflow_flinkstyle.kafka.mirror.lag import mirror_lag
from airflow_flinkstyle.kafka.mirror.retention import retention_findings
from airflow_flinkstyle.kafka.mirror.topics import read_positions
from airflow_flinkstyle.rewrite.route import incompatible_topics
from airflow_flinkstyle.types import ids_differ
from airflow_flinkstyle.wording import row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
    from airflow_flinkstyle.jobs.migration.producers import ProducerSwitch
    from airflow_flinkstyle.jobs.spec import SubmitTarget
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.offsets import Offsets
    from airflow_flinkstyle.protocol.query_records import SinkLineage, SourceIdentity
    from airflow_flinkstyle.rewrite.rules import SourceRule
    from airflow_flinkstyle.savepoint import compat
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.types import TopicPartition

    Sources = Mapping[str, SourceIdentity]
    """By ``query/source``."""


def mirrored(target: KafkaCluster, mirror: MirrorSettings, sinks: Iterable[SinkLineage]) -> list[str]:
    """Return a sentence for each control topic that is copied to the target under its own name.

    MirrorMaker records what it has copied, so a topic that the sink made there is not taken for a copy.
    A mirror that keeps offsets records nothing: then the topic may be there only if the sink is.
    """
    if mirror.keeps_offsets:
        own = describe(target, ()).cluster_id
        sinks, copied = [one for one in sinks if one.cluster_id != own], existing_topics(target)
    else:
        copied = frozenset(topic for topic, _ in read_positions(target, mirror))
    return [
        f"{one.control_topic}, the control topic of lineage {one.lineage}, is mirrored to {target}: exclude "
        f"it (topics.exclude={one.control_topic}, beside the default exclusions) and delete the copy."
        for one in sinks
        if one.control_topic in copied and mirror.target_topic(one.control_topic) == one.control_topic
    ]


Level = Literal["ok", "warning", "refusal"]
_GRAVEST_FIRST: tuple[Level, ...] = ("refusal", "warning", "ok")
_MUCH_LAG = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightFinding:
    """The result of one check."""

    check: str
    level: Level
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The results of all checks."""

    findings: tuple[PreflightFinding, ...]

    @property
    def refusals(self) -> tuple[PreflightFinding, ...]:
        """What makes the migration impossible or unsafe."""
        return tuple(finding for finding in self.findings if finding.level == "refusal")

    def as_markdown(self) -> str:
        """Render the table for the log and the approval."""
        gravest = sorted(self.findings, key=lambda f: _GRAVEST_FIRST.index(f.level))
        rows = [row((f.check, f.level, f.detail)) for f in gravest]
        return "\n".join(["#### Pre-flight", "", "| check | result | detail |", "|---|---|---|", *rows])

    def require_ok(self) -> None:
        """Raise ``PREFLIGHT`` if anything was refused; all reasons are named."""
        if self.refusals:
            reasons = " ".join(f"({i}) {f.check}: {f.detail}" for i, f in enumerate(self.refusals, 1))
            raise PREFLIGHT.with_text(
                f"The migration was expected to be possible, found {len(self.refusals)} reasons against it. "
                f"{reasons}",
                state_after="Nothing was changed; the job keeps running.",
                remedy="Correct them, then start the migration again.",
            )


def run_preflight(
    runs: JobView,
    kafka: LiveKafka,
    switch: ProducerSwitch,
    *,
    target: SubmitTarget | None = None,
    manifest: Manifest | None = None,
) -> Preflight:
    """Check the job, its next Spark, both clusters, MirrorMaker, retention and the producer switch.

    Args:
        runs: The job; it must run.
        kafka: The clusters and MirrorMaker's settings.
        switch: How producers are held; only read.
        target: Where the job is to run after the move; None for where it runs now.
        manifest: A recent savepoint, whose positions show what the job has read. Without one, records that
            the target's retention would delete are a warning only.
    """
    findings, sources = [*_job(runs)], _sources(runs)
    checks: list[tuple[str, Callable[[], PreflightFinding]]] = [
        ("producer switch", lambda: _switch(switch)),
    ]
    if sources is not None:
        checks = [
            ("spark", lambda: spark_finding(runs, target)),
            ("standby", lambda: _standby(runs, target)),
            ("clusters", lambda: _clusters(kafka, sources)),
            ("topics", lambda: _topics(kafka, sources)),
            ("mirror", lambda: _mirror(kafka, sources)),
            ("retention", lambda: _retention(kafka, sources, manifest)),
            ("fence", lambda: _fence(kafka, sources)),
            ("control topics", lambda: _control_topics(runs, kafka)),
            *checks,
        ]
    for name, check in checks:
        try:
            findings.append(check())
        except FlinkstyleError as error:
            findings.append(PreflightFinding(check=name, level="refusal", detail=str(error)))
    return Preflight(findings=tuple(findings))


def _job(runs: JobView) -> list[PreflightFinding]:
    status = runs.settled_status()
    level: Level = "ok" if isinstance(status, Running) else "refusal"
    return [PreflightFinding(check="job", level=level, detail=f"Job {runs.job}: {describe_status(status)}.")]


def spark_finding(runs: JobView, target: SubmitTarget | None) -> PreflightFinding:
    """Compare the settings of the running version with those of the next one."""
    status = runs.status()
    findings: tuple[compat.Incompatibility, ...] = ()
    if target is not None and isinstance(status, Running) and status.run.claim.launch:
        spec, _ = from_launch(status.run.claim.launch, secret_env={})
        findings = spark_findings(runs, spec, target)
    detail = " ".join(map(str, findings)) or "The next driver's Spark can resume from the checkpoint."
    return PreflightFinding(check="spark", level="refusal" if findings else "ok", detail=detail)


def _standby(runs: JobView, target: SubmitTarget | None) -> PreflightFinding:
    """Report what the next driver takes beside the one that runs."""
    status = runs.settled_status(at_most_s=0)
    if isinstance(status, NeverStarted):
        return PreflightFinding(
            check="standby", level="warning", detail="The job never ran: its size is not known."
        )
    spec, at = runs.launch_of(status.run.generation)
    sentence, is_free = require_room(runs, spec, target or at)
    return PreflightFinding(check="standby", level="ok" if is_free else "warning", detail=sentence)


def _sources(runs: JobView) -> Sources | None:
    """Return the Kafka sources of the running job; None if it does not run."""
    status = runs.status()
    if not isinstance(status, Running):
        return None
    return {
        f"{query}/{name}": source
        for query, reported in status.heartbeat.queries.items()
        for name, source in reported.sources.items()
    }


def _on_old(kafka: LiveKafka, sources: Sources) -> dict[str, str | None]:
    """Return topic -> topic id of the sources that read the old cluster."""
    cluster_id = kafka.old_cluster_id
    found = [source.topic_ids for source in sources.values() if source.cluster_id == cluster_id]
    return {topic: topic_id for topics in found for topic, topic_id in topics.items()}


def _clusters(kafka: LiveKafka, sources: Sources) -> PreflightFinding:
    old, new = kafka.old_cluster_id, kafka.new_cluster_id
    read = {source.cluster_id for source in sources.values()}
    if old is None and new is None:
        detail = "Neither cluster has an id: nothing shows that they are two, or which one the job reads."
        return PreflightFinding(check="clusters", level="refusal", detail=detail)
    if old == new:
        detail = f"Both connections lead to cluster {old}; two clusters were expected."
        return PreflightFinding(check="clusters", level="refusal", detail=detail)
    if old not in read:
        named = ", ".join(sorted(one or "one without an id" for one in read))
        detail = f"The job reads cluster {named or 'none'}, but {kafka.old} is cluster {old}."
        return PreflightFinding(check="clusters", level="refusal", detail=detail)
    return PreflightFinding(
        check="clusters", level="ok", detail=f"From {old} ({kafka.old}) to {new} ({kafka.new})."
    )


def _topics(kafka: LiveKafka, sources: Sources) -> PreflightFinding:
    """Compare topic ids with the job's, and the topics of both clusters with what the sources' ways need."""
    topics = _on_old(kafka, sources)
    old, new = kafka.view("old", topics), kafka.view("new", kafka.target_topics(topics))
    wrong = [
        f"{topic} was re-created: the job reads id {topic_id}, found {old.topics[topic].topic_id}"
        for topic, topic_id in sorted(topics.items())
        if ids_differ(topic_id, old.topics[topic].topic_id)
    ]
    partitions = {topic: old.topics[topic].partitions.keys() for topic in topics}
    incompatible = incompatible_topics(kafka.request(), partitions, new)
    for topic in sorted(_of_rule(kafka, sources, lambda rule: not rule.has_chosen_start)):
        wrong += [incompatible[topic]] if topic in incompatible else []
    for topic in sorted(_of_rule(kafka, sources, lambda rule: rule.needs_empty_target)):
        held = [tp for tp in new.only(kafka.target_topics([topic])).partitions if _holds_records(new, tp)]
        wrong += [f"{topic}: {len(held)} partitions of the target hold records already"] if held else []
    if wrong or not topics:
        detail = "; ".join(wrong) or "the job reads no topic there"
        return PreflightFinding(check="topics", level="refusal", detail=detail)
    return PreflightFinding(check="topics", level="ok", detail=", ".join(sorted(topics)))


def _of_rule(
    kafka: LiveKafka, sources: Sources, applies: Callable[[SourceRule], bool]
) -> dict[str, str | None]:
    """Return topic -> topic id of the sources on the old cluster whose rule meets ``applies``."""
    return _on_old(kafka, {name: s for name, s in sources.items() if applies(kafka.strategies.named(name))})


def _to_prove(kafka: LiveKafka, sources: Sources) -> set[str]:
    old_id = kafka.old_cluster_id
    on_old = {name: source.topic_ids for name, source in sources.items() if source.cluster_id == old_id}
    return kafka.to_prove({name: list(topic_ids) for name, topic_ids in on_old.items()})


def _holds_records(view: ClusterView, tp: TopicPartition) -> bool:
    log = view.log_range(tp)
    return log is not None and log.start < log.end


def _mirror(kafka: LiveKafka, sources: Sources) -> PreflightFinding:
    topics = _to_prove(kafka, sources)
    if not topics:
        return PreflightFinding(check="mirror", level="ok", detail="Not needed: no position is to be proved.")
    if kafka.mirror is None:
        detail = "Its aliases were expected: without its own positions none at a log's end can be proved."
        return PreflightFinding(check="mirror", level="refusal", detail=detail)
    lag = mirror_lag(kafka.old, kafka.new, kafka.mirror, kafka.view("old", topics))
    behind = sum(lag.values())
    hint = (
        "Its position follows its copies by offset.flush.interval.ms of the target "
        "(60 s unless <target alias>.offset.flush.interval.ms says otherwise): the window waits that long."
    )
    level: Level = "warning" if behind > _MUCH_LAG else "ok"
    return PreflightFinding(check="mirror", level=level, detail=f"{behind} records behind. {hint}")


def _retention(kafka: LiveKafka, sources: Sources, manifest: Manifest | None) -> PreflightFinding:
    fitting = {
        topic: names[0]
        for topic in _to_prove(kafka, sources)
        if len(names := kafka.target_topics([topic])) == 1
    }
    positions = _positions(kafka, fitting, manifest)
    found = retention_findings(kafka.old, kafka.new, positions, fitting) if fitting else ()
    if not found:
        return PreflightFinding(
            check="retention", level="ok", detail="The target deletes nothing that is unread."
        )
    unread = manifest is not None and any(finding.endangered for finding in found)
    detail = " ".join(finding.describe() for finding in found)
    return PreflightFinding(check="retention", level="refusal" if unread else "warning", detail=detail)


def _fence(kafka: LiveKafka, sources: Sources) -> PreflightFinding:
    topics = sorted(_on_old(kafka, sources))
    planned = kafka.watch.fence.plan(topics).describe()
    try:
        denied = kafka.denials(topics)
    except ClusterDeniedError as error:
        detail = f"{planned} Whether {kafka.new} denies anybody to write is not known: {error.problem}"
        return PreflightFinding(check="fence", level="ok", detail=detail)
    if not denied:
        return PreflightFinding(check="fence", level="ok", detail=planned)
    # The fence of an earlier migration from there, or a copy of one by MirrorMaker.
    level: Level = "refusal" if any(rule.principal == EVERYBODY for rule in denied) else "warning"
    detail = (
        f"{planned} Producers that move to {kafka.new} are denied to write there: "
        f"{'; '.join(map(str, denied))}. Remove them (kafka-acls --remove), if a migration left them."
    )
    return PreflightFinding(check="fence", level=level, detail=detail)


def _control_topics(runs: JobView, kafka: LiveKafka) -> PreflightFinding:
    status = runs.status()
    queries = status.heartbeat.queries.values() if isinstance(status, Running) else ()
    sinks = [lineage for query in queries if query.sinks for lineage in query.sinks.lineages]
    found = mirrored(kafka.new, kafka.mirror, sinks) if kafka.mirror and sinks else []
    detail = " ".join(found) or f"None of {len(sinks)} is mirrored."
    return PreflightFinding(check="control topics", level="refusal" if found else "ok", detail=detail)


def _positions(kafka: LiveKafka, topics: Mapping[str, str], manifest: Manifest | None) -> Offsets:
    """Return what the job reads next; without a savepoint, where the logs begin."""
    view = kafka.view("old", topics)
    positions = view.starts
    for query in manifest.queries if manifest else ():
        for position in query.kafka.values():
            if position.cluster_id == view.cluster_id:
                positions |= {tp: at for tp, at in position.offsets.items() if tp in positions}
    return positions


def _switch(switch: ProducerSwitch) -> PreflightFinding:
    position = switch.read()
    if position == "hold":
        detail = (
            "Producers are held already: another migration is under way, or was left unfinished "
            "(flinkstyle migration list)."
        )
        return PreflightFinding(check="producer switch", level="refusal", detail=detail)
    return PreflightFinding(
        check="producer switch", level="ok", detail=f"Position: {position or 'not known yet'}."
    )
