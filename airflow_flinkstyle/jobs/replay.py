"""Run a range of a job's records once more, as a job of its own beside it, into another output.

The replay is a new job: its history begins with a copy of the job's savepoint, as a fork, so its queries have
ids, checkpoints and transactional lineages of their own. Its driver ends it at the end of the range.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from datetime import timezone
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.errors import STEP_TIMEOUT
from airflow_flinkstyle.jobs.run_end import end_as_json, look_for_end
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.replay_records import REPLAY, Replay
from airflow_flinkstyle.python_versions import moment_of
from airflow_flinkstyle.savepoint.compat import handed_over
from airflow_flinkstyle.savepoint.exchange.handing import hand_over
from airflow_flinkstyle.savepoint.sinks import WRITE_NOWHERE
from airflow_flinkstyle.types import NextOffset, ids_differ

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.types import Generation

COMMIT_OFFSETS: Final = "spark.flinkstyle.commitOffsets"
_NOTHING = "Nothing was started; the job was not touched."
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """Where a range ends; one of the two fields is set."""

    ms: int | None = None
    """At the first record of each partition of this time or later; epoch milliseconds."""
    positions: Mapping[str, Mapping[str, Offsets]] | None = None
    """By query and source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAsked:
    """What a caller asks to be replayed."""

    savepoint_id: str
    until: str | Mapping[str, Any]
    """A time (ISO 8601 with its zone, or epoch milliseconds), offsets by topic and partition, as a mapping or
    JSON, or a later savepoint of the job."""
    records: int = 250_000
    """The most records of one batch."""
    own_outputs: tuple[str, ...] = ()
    """Queries that are confirmed to write elsewhere than the job's, where no record shows it."""


def replay_job(
    job: JobClient, beside: JobClient, spec: JobSpec, target: SubmitTarget, *, key: str, asked: ReplayAsked
) -> Generation:
    """Start a replay; a retry with the same key finds it, and ``await_replay`` waits for its end.

    Args:
        job: Whose records are run once more; whether it runs does not matter.
        beside: The new job.
        spec: What it runs; its name is that of ``beside``.
        target: Where it runs.
        key: The caller, without the try number.
        asked: The range, and what is confirmed.

    Returns:
        The generation of ``beside``.

    Raises:
        BadInputError: If the name is taken, the range is none, the savepoint has a query without Kafka, or it
            is neither known nor confirmed that a query writes elsewhere.
        SavepointMissingError: If there is no such savepoint.
        FlinkstyleError: As a start does.
    """
    view, name = job.view, beside.view.job
    own = beside.view.own_claim(key)
    # Whichever savepoint is the newest by now: the order names the one to replay.
    if own is not None and beside.view.board.takeover_order(own) is not None:
        return beside.starts.start(*beside.view.launch_of(own), claim_key=key).generation
    manifest = view.repository.read(asked.savepoint_id)
    if own is None:
        _require_new(beside, name, view.job, manifest.savepoint_id)
    _require_kafka(manifest)
    until = until_of(asked.until, manifest, view.repository)
    replay = _replay(job, manifest, asked, until)
    hand_over(view.repository, manifest.savepoint_id, beside.view.repository)
    conf = {**handed_over(spec.conf, manifest), COMMIT_OFFSETS: "false", REPLAY: replay.as_setting()}
    handle = beside.starts.start(
        replace(spec, name=name, conf=conf, leave_checkpoints=()),
        target,
        claim_key=key,
        # Its outputs are its own, so none of them can have seen a batch.
        origin=FromSavepoint(savepoint_id=manifest.savepoint_id, rewind="fork", skip_known_batches=True),
    )
    log.info("Job %s replays job %s from %s", name, view.job, manifest.savepoint_id)
    return handle.generation


def await_replay(beside: JobClient, generation: Generation, *, timeout_s: float) -> dict[str, Any]:
    """Wait until a replay has closed by itself, and return what it has run; a driver that died starts again.

    Raises:
        DriverFailedError: If it failed, and reported why.
        JobNotRunningError: If it was stopped before its end.
        JobError: ``STEP_TIMEOUT`` if it took longer; it runs on.
    """
    view = beside.view
    wait = view.waiting(timeout_s)
    while (ended := end_as_json(look_for_end(beside.starts, generation))) is None:
        if not wait.again():
            raise STEP_TIMEOUT.with_text(
                f"Replay {view.job} was expected to end within {timeout_s:g} s.",
                state_after="It runs on, and ends by itself.",
                remedy="Ask again, with the same key or task; or stop it.",
            )
    ranges = view.board.replay_ranges()
    queries = {
        query: {"offsets": one.offsets, "begin": _plain(one.begin), "end": _plain(one.end)}
        for query, one in sorted(ranges.items())
    }
    return {"job": view.job, **ended, "queries": queries}


def _plain(positions: Mapping[str, Offsets]) -> dict[str, Any]:
    return {source: json.loads(json.dumps(at.by_topic)) for source, at in positions.items()}


def _require_new(beside: JobClient, name: str, job: str, savepoint_id: str) -> None:
    view = beside.view
    if name == job:
        raise BadInputError(
            f"A name of its own was expected for the replay of job {job}, found {name!r}.",
            state_after=_NOTHING,
            remedy=f"Choose another one, for example {job}-replay.",
        )
    others = set(view.repository.ids()) - {savepoint_id}
    if view.board.generations() or others:
        raise BadInputError(
            f"The replay of job {job} was expected to be a new job, found that {name} has a history.",
            state_after=_NOTHING,
            remedy=f"Choose another name; or remove {name} first (flinkstyle job remove).",
        )


def _require_kafka(manifest: Manifest) -> None:
    found = [query.name for query in manifest.queries if not query.kafka]
    if found or not manifest.queries:
        raise BadInputError(
            f"Every query of savepoint {manifest.savepoint_id} was expected to read Kafka, so that its "
            f"records can be run up to a chosen end, found none in {', '.join(found) or 'it'}.",
            state_after=_NOTHING,
            remedy="A job without Kafka cannot be replayed; start a copy of it from an exported savepoint.",
        )


def _replay(job: JobClient, manifest: Manifest, asked: ReplayAsked, until: Until) -> Replay:
    """Return the driver's instructions, once it is known where every query of the job writes."""
    heartbeat = job.view.board.current_heartbeat()
    statuses = heartbeat.queries if heartbeat is not None else {}
    unclear = [
        query.name
        for query in manifest.queries
        if not _shows_output(statuses.get(query.name)) and query.name not in asked.own_outputs
    ]
    if unclear:
        raise BadInputError(
            f"It was expected to be known where job {job.view.job} writes, so that its replay cannot write "
            f"there, found that no record shows it for {', '.join(unclear)}.",
            state_after=_NOTHING,
            remedy=f"Let the script write elsewhere, by its arguments, and confirm it: "
            f"own_outputs={unclear} (--own-output {' --own-output '.join(unclear)}).",
        )
    unknown = sorted(set(asked.own_outputs) - {query.name for query in manifest.queries})
    if unknown or asked.records < 1:
        raise BadInputError(
            f"A replay was expected to name queries of savepoint {manifest.savepoint_id} and at least 1 "
            f"record of a batch, found {', '.join(unknown) or asked.records}.",
            state_after=_NOTHING,
            remedy="Correct own_outputs, or records.",
        )
    sinks = [status.sinks for status in statuses.values()] + [query.sinks for query in manifest.queries]
    return Replay(
        job=job.view.job,
        queries=tuple(query.name for query in manifest.queries),
        until_ms=until.ms,
        until=until.positions or {},
        records=asked.records,
        outputs=tuple(status.writes for status in statuses.values() if status.writes is not None),
        lineages=tuple(sorted({one.lineage for sink in sinks if sink is not None for one in sink.lineages})),
        own_outputs=asked.own_outputs,
    )


def _shows_output(status: QueryStatus | None) -> bool:
    """Return whether a query's status shows where it writes."""
    if status is None:
        return False
    writes = status.writes
    return status.sink in WRITE_NOWHERE or (writes is not None and bool(writes.topic or writes.path))


def until_of(given: str | Mapping[str, Any], manifest: Manifest, repository: SavepointRepository) -> Until:
    """Return where a range ends, as far as that is known without Kafka.

    Raises:
        BadInputError: If it is no time, offsets or savepoint, or not after the savepoint.
        SavepointMissingError: If it is no time, no offsets, and no savepoint of the job.
    """
    text = given.strip() if isinstance(given, str) else given
    if isinstance(text, str) and not text.startswith("{"):
        at_ms = _time_of(text)
        if at_ms is not None:
            return Until(ms=at_ms)
        later = repository.read(text)
        positions = {query.name: _of_later(query, later) for query in manifest.queries}
    else:
        wanted = _offsets_of(text)
        positions = {
            query.name: {
                source: Offsets({tp: at for tp, at in wanted.items() if tp in position.offsets})
                for source, position in query.kafka.items()
            }
            for query in manifest.queries
        }
        found = {tp for sources in positions.values() for at in sources.values() for tp in at}
        if unknown := sorted(set(wanted) - found):
            raise _bad(f"partitions that the savepoint reads, found {unknown[0][0]}-{unknown[0][1]}")
    _require_behind(manifest, positions)
    return Until(positions=positions)


def _time_of(text: str) -> int | None:
    """Return a time as epoch milliseconds; None if the text is no time."""
    if text.isdigit():
        return int(text)
    try:
        moment = moment_of(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        raise _bad(f"a time with its zone, found {text!r}")
    return int(moment.astimezone(timezone.utc).timestamp() * 1000)


def _offsets_of(given: str | Mapping[str, Any]) -> Offsets:
    try:
        read = json.loads(given) if isinstance(given, str) else given
        by_topic = {
            str(topic): {int(number): NextOffset(int(at)) for number, at in numbers.items()}
            for topic, numbers in read.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise _bad(f"offsets by topic and partition, found {given!r}") from error
    return Offsets.of(by_topic)


def _of_later(query: QuerySnapshot, later: Manifest) -> dict[str, Offsets]:
    """Return a later savepoint's positions of a query."""
    there = later.query(query.name)
    found = {}
    for source, position in query.kafka.items():
        known: KafkaPosition | None = there.kafka.get(source) if there is not None else None
        if known is None:
            raise _bad(
                f"a savepoint with source {source} of query {query.name}, {later.savepoint_id} has none"
            )
        if ids_differ(known.cluster_id, position.cluster_id):
            raise _bad(f"a savepoint of the same Kafka cluster, found {later.savepoint_id} on another one")
        found[source] = known.offsets
    return found


def _require_behind(manifest: Manifest, positions: Mapping[str, Mapping[str, Offsets]]) -> None:
    moves = False
    for query in manifest.queries:
        for source, position in query.kafka.items():
            for (topic, number), at in positions[query.name][source].items():
                begin = position.offsets.get((topic, number), NextOffset(0))
                moves |= at > begin
                if at < begin:
                    raise _bad(
                        f"offsets behind savepoint {manifest.savepoint_id}, found {topic}-{number} at {at}, "
                        f"and the savepoint at {begin}"
                    )
    if not moves:
        raise _bad(f"records behind savepoint {manifest.savepoint_id}, found none up to there")


def _bad(found: str) -> BadInputError:
    return BadInputError(
        f"The end of a replay (until) was expected to be a time, offsets or a savepoint: {found}.",
        state_after=_NOTHING,
        remedy="Name a later end, or an older savepoint. For example 2026-11-26T18:00:00Z, "
        '{"orders": {"0": 1200}}, or a later savepoint of the job.',
    )
