"""What a start would find and do, without doing it: its checks, its plan, and its Kafka sources."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.errors import JobRunningError
from airflow_flinkstyle.jobs.start.rewinds import require_newest, unused_from
from airflow_flinkstyle.jobs.start.tables import STAYS
from airflow_flinkstyle.jobs.status import NeverStarted, Running, Starting, describe_status
from airflow_flinkstyle.jobs.stopped import last_run
from airflow_flinkstyle.kafka.cluster import describe, existing_topics
from airflow_flinkstyle.kafka.errors import TopicMissingError
from airflow_flinkstyle.kafka.login import named_connections
from airflow_flinkstyle.kafka.positions import require_resumable, require_same_log
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.head import read_line
from airflow_flinkstyle.protocol.line import OnLine
from airflow_flinkstyle.protocol.query_records import Reading
from airflow_flinkstyle.savepoint import compat, sinks
from airflow_flinkstyle.savepoint.errors import SinkSkipsError
from airflow_flinkstyle.savepoint.files.renumber import renumber
from airflow_flinkstyle.savepoint.sequence import cut_of, place_of
from airflow_flinkstyle.types import BatchId, id_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.jobs.status import JobStatus
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.protocol.line import Where
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest, QuerySnapshot
    from airflow_flinkstyle.types import Rewind


@dataclass(frozen=True, slots=True)
class Passes:
    """A start would not be refused for this."""

    says: str
    """What was found, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuses:
    """A start would be refused."""

    code: str
    """Of the error that it would get."""
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class NotJudged:
    """Only the start itself, or its driver, can check this."""

    why: str


Verdict = Passes | Refuses | NotJudged


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCheck:
    """One check before a job starts."""

    about: str
    verdict: Verdict


def judged(about: str, check: Callable[[], str]) -> StartCheck:
    """Return the result of a check: what it found, or the error that a start would get.

    Args:
        about: What is checked.
        check: Returns what was found; raises as the start would.
    """
    try:
        return StartCheck(about=about, verdict=Passes(check()))
    except FlinkstyleError as error:
        if error.retryable:  # what cannot be reached now proves nothing
            return StartCheck(about=about, verdict=NotJudged(error.problem))
        return StartCheck(about=about, verdict=refused(error))


def refused(error: FlinkstyleError) -> Refuses:
    """Return the refusal for an error that a start would get."""
    return Refuses(code=error.code, problem=error.problem, remedy=error.remedy)


# Whether the positions of a savepoint can still be read: live clusters are asked, and nothing is changed.

_STRICT: Final = Reading(servers="", isolation="")
"""For a source that no run has reported: Spark's defaults."""


def check_positions(
    manifest: Manifest,
    clusters: Sequence[KafkaCluster],
    reads: Mapping[str, Mapping[str, Reading]] | None = None,
) -> Iterator[StartCheck]:
    """Check each Kafka source of a savepoint as the start guard does, on the cluster that it belongs to.

    Args:
        manifest: The savepoint.
        clusters: Those that may be asked. A source on another cluster is not judged.
        reads: How the job's last run read, by query and source: a loss or a topic that the script's own
            options (``failOnDataLoss``, ``subscribePattern``) allow refuses no start.
    """
    reached, problems = _reached(clusters) if any(query.kafka for query in manifest.queries) else ({}, [])
    for query in manifest.queries:
        for source, position in query.kafka.items():
            about = f"positions of query {query.name}, source {source}"
            cluster = reached.get(position.cluster_id)
            if cluster is None:
                yield StartCheck(about=about, verdict=_not_reached(position, reached, problems))
            else:
                reading = (reads or {}).get(query.name, {}).get(source, _STRICT)
                yield judged(about, partial(_read, query, source, position, cluster, reading))


def _reached(clusters: Sequence[KafkaCluster]) -> tuple[dict[str | None, KafkaCluster], list[str]]:
    """Return the clusters by their ids, and why others did not answer."""
    reached, problems = {}, []
    for cluster in clusters:
        try:
            reached[describe(cluster, ()).cluster_id] = cluster
        except FlinkstyleError as error:
            problems.append(error.problem)
    return reached, problems


def _not_reached(
    position: KafkaPosition, reached: dict[str | None, KafkaCluster], problems: list[str]
) -> NotJudged:
    if problems:
        return NotJudged(" ".join(problems))
    others = ", ".join(
        f"{cluster.name} reaches {id_words(cluster_id)}" for cluster_id, cluster in reached.items()
    )
    asked = f"of the connections that were asked, {others}" if others else "no connection was asked"
    return NotJudged(f"They belong to Kafka cluster {id_words(position.cluster_id)}; {asked}.")


def _read(
    query: QuerySnapshot, source: str, position: KafkaPosition, cluster: KafkaCluster, reading: Reading
) -> str:
    """Return how far the positions are from both ends of their logs; raises as the start guard does."""
    where = f"source {source} of query {query.name}"
    if not position.offsets:
        return "It has read no partition yet."
    topics = position.offsets.topics
    if reading.follows_pattern:
        topics &= existing_topics(cluster)
    view = describe(cluster, topics)
    require_same_log(
        position.cluster_id, position.topic_ids, view, where, may_be_gone=reading.follows_pattern
    )
    gone = position.offsets.topics - topics
    if gone and not reading.accepts_loss:
        raise TopicMissingError.on(f"of {where}", gone)
    planned = _planned(query, source)
    _require_resumable(planned or position.offsets, view, where, reading)
    if planned:  # the planned batch may have partitions that the others lack
        _require_resumable(planned | position.offsets, view, where, reading)
    return _describe(position.offsets, view)


def _require_resumable(offsets: Offsets, view: ClusterView, where: str, reading: Reading) -> None:
    starts = view.starts
    there = {tp: offset for tp, offset in offsets.items() if tp[0] in view.topics}
    if reading.accepts_loss:
        there = {tp: max(offset, starts.get(tp, offset)) for tp, offset in there.items()}
    if there:
        require_resumable(Offsets(there), view, where)


def _planned(query: QuerySnapshot, source: str) -> Offsets | None:
    if query.planned_offsets is None:
        return None
    log = offset_log.parse(query.planned_offsets)
    return log.kafka_offsets(source) if source in log.sources else None


def _describe(offsets: Offsets, view: ClusterView) -> str:
    logs = {tp: log for tp in offsets if (log := view.log_range(tp)) is not None}
    lost = [f"topic {topic} is gone" for topic in sorted(offsets.topics - view.topics.keys())]
    deleted = sum(max(0, log.start - offsets[tp]) for tp, log in logs.items())
    lost += [f"{deleted:,} offsets were deleted unread"] if deleted else []
    if lost:
        return f"It starts, as failOnDataLoss=false accepts, although {' and '.join(lost)}."
    unread = sum(log.end - offsets[tp] for tp, log in logs.items())
    nearest = min(logs, key=lambda tp: offsets[tp] - logs[tp].start)
    margin = offsets[nearest] - logs[nearest].start
    return (
        f"All {len(offsets)} are in their logs, {unread:,} offsets before their ends; the nearest to being "
        f"deleted, of {nearest[0]}-{nearest[1]}, is {margin:,} offsets behind its log's start."
    )


_NOTHING = "Nothing was started."
_ONLY_TAKEN_BACK = "It leaves out batches whose ids it has seen: refused without restore_tables='yes'."
_SCRIPT = (
    "Whether the script has the same queries, sources and schemas, and what its functions do with batch ids "
    "that they have seen: only the driver sees them, and refuses before it runs a batch."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DryStart:
    """What is known of a start before it is asked for."""

    since: Mapping[str, int | None]
    """Query of the savepoint -> batches that the job has committed since; None if no record shows it."""
    checks: tuple[StartCheck, ...]
    """Those of every start, whatever is chosen for the batches since."""
    ways: Mapping[Rewind, tuple[StartCheck, ...]]
    """What each choice about those batches adds."""
    kafka_connections: tuple[str, ...]
    """Airflow connections with which the job's own rules log in to Kafka; they can check positions."""


def dry_start(runs: JobView, manifest: Manifest) -> DryStart:
    """Return what a start from a savepoint would find, by the job's records; writes nothing."""
    status = runs.status()
    line = read_line(runs.board, back_to=manifest.taken_from_generation or 0)
    where = place_of(cut_of(manifest), line) if line is not None else None
    since = _since(status, manifest, where)
    launch = last_run.unverified_launch(runs)
    overrides = launch[0].overrides if launch is not None else ()
    return DryStart(
        since=since,
        checks=(
            judged("the job has stopped", lambda: _stopped(runs, status)),
            _spark(status, manifest, launch),
            StartCheck(about="the script", verdict=NotJudged(_SCRIPT)),
        ),
        ways={
            "continue": (judged("batches since the savepoint", lambda: _newest(runs, manifest, since)),),
            "fork": tuple(_forks(runs, manifest, since)),
            "re-emit": tuple(_emits_again(query) for query in manifest.queries),
        },
        kafka_connections=tuple(sorted(named_connections(rule.options for rule in overrides))),
    )


def last_reads(runs: JobView) -> dict[str, Mapping[str, Reading]]:
    """Return how the job's last run read its Kafka sources, by query and source; empty if unknown."""
    heartbeat = last_run.last_run_and_heartbeat(runs)[1]
    return {name: one.reads for name, one in heartbeat.queries.items()} if heartbeat is not None else {}


def _since(status: JobStatus, manifest: Manifest, where: Where | None) -> dict[str, int | None]:
    """Count along the line of the job's head: other lines have the same numbers, for other batches."""
    heartbeat = None if isinstance(status, NeverStarted) else status.run.heartbeat
    is_comparable = isinstance(where, OnLine) and where.renumbered is None
    statuses = heartbeat.queries if heartbeat is not None and is_comparable else {}

    def of(query: QuerySnapshot) -> int | None:
        last = statuses.get(query.name)
        if last is None or last.query_id != query.query_id or last.batch_id is None:
            return None
        return max(0, last.batch_id - query.batch_id)

    return {query.name: of(query) for query in manifest.queries}


def _stopped(runs: JobView, status: JobStatus) -> str:
    if isinstance(status, Running | Starting):
        raise JobRunningError(
            f"Job {runs.board.job} was expected not to run, found that {describe_status(status)}.",
            state_after=_NOTHING,
            remedy="Stop it first; or bring it back to this savepoint while it runs (DAG roll_back).",
        )
    return f"It does not run: {describe_status(status)}."


def _spark(status: JobStatus, manifest: Manifest, launch: tuple[JobSpec, SubmitTarget] | None) -> StartCheck:
    about = "Spark's version and settings"
    heartbeat = None if isinstance(status, NeverStarted) else status.run.heartbeat
    version = heartbeat.spark_version if heartbeat is not None else ""
    if launch is None or not version:
        return StartCheck(
            about=about, verdict=NotJudged("No run of this job has reported which Spark it uses.")
        )
    spec, target = launch
    runtime = compat.SparkRuntime(version=version, confs={**target.conf, **spec.conf})

    def compare() -> str:
        findings = compat.check(manifest, runtime)
        compat.require_compatible(f"savepoint {manifest.savepoint_id}", findings, state_after=_NOTHING)
        return f"Spark {version} and the last run's settings fit; Spark {manifest.spark_version} took it."

    return judged(about, compare)


def _newest(runs: JobView, manifest: Manifest, since: Mapping[str, int | None]) -> str:
    require_newest(runs, manifest)
    if None in since.values():
        return "No run of this job is known to have committed anything after it."
    return "The job has committed nothing after it: no record is lost or counted twice."


def _forks(runs: JobView, manifest: Manifest, since: Mapping[str, int | None]) -> Iterator[StartCheck]:
    """Check whether each query can continue with numbers that its sink has not seen."""
    numbers = unused_from(runs.board, manifest, "fork")
    for query in manifest.queries:
        if (query.sink in sinks.FILE_SINKS and since[query.name] is None) or _is_unknown(query):
            yield StartCheck(
                about=_sink(query), verdict=NotJudged("Only the driver sees which batches it knows.")
            )
        else:
            number = _last_used(query, numbers.get(query.name), since[query.name])
            yield judged(_sink(query), lambda: _renumbers(query, number))  # noqa: B023  # called now
        if query.sink in sinks.TABLE_SINKS:
            about = f"table of query {query.name}"
            yield StartCheck(about=about, verdict=NotJudged(f"What the job has written since {STAYS}."))


def _is_unknown(query: QuerySnapshot) -> bool:
    """Return whether no record shows if the sink, or a function, remembers batch ids."""
    return query.sink is None or (
        sinks.may_remember(query.sink) and (query.sinks is None or query.sink == "foreach")
    )


def _last_used(query: QuerySnapshot, number: int | None, since: int | None) -> int | None:
    """Return the number after which a fork continues; the savepoint's own if its sink needs no other."""
    if query.sink in sinks.FILE_SINKS:
        return query.batch_id + (since or 0)
    is_function = sinks.may_skip(query.sink, query.sinks) and not sinks.remembers_batches(query.sink)
    return number if is_function else query.batch_id


def _renumbers(query: QuerySnapshot, number: int | None) -> str:
    if number is None:
        raise SinkSkipsError.unknown(f"{query.sink} of query {query.name}", state_after=_NOTHING)
    renumber(query, BatchId(number))
    return "Its batches since are run again, under a new query id and numbers that the sink has not seen."


def _emits_again(query: QuerySnapshot) -> StartCheck:
    """Check whether a sink leaves out batch ids that are used again."""
    if query.sink == "iceberg":
        return StartCheck(about=_sink(query), verdict=NotJudged(_ONLY_TAKEN_BACK))
    if remembering := sinks.remembering([query]):
        error: FlinkstyleError = SinkSkipsError.of(
            f"{remembering[0]}, which silently leaves out batches whose ids it has seen", state_after=_NOTHING
        )
        return StartCheck(about=_sink(query), verdict=refused(error))
    if sinks.may_skip(query.sink, query.sinks) or _is_unknown(query):
        return StartCheck(
            about=_sink(query),
            verdict=NotJudged(
                "It may leave out batches whose ids it has seen; the driver refuses it then, unless that is "
                "accepted (skip_known_batches)."
            ),
        )
    return judged(_sink(query), lambda: "Its batches since are run again, under the same ids.")


def _sink(query: QuerySnapshot) -> str:
    return f"sink {query.sink or 'unknown'} of query {query.name}"
