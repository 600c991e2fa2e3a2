"""Bring a running job back on demand: which version there is to go back to, and an upgrade to it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.errors import JobNotRunningError
from airflow_flinkstyle.jobs.spec import from_launch
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.jobs.upgrade.upgrade import Upgrade
from airflow_flinkstyle.protocol.head import read_line
from airflow_flinkstyle.protocol.line import OnLine
from airflow_flinkstyle.savepoint.compat import state_changes_unknown
from airflow_flinkstyle.savepoint.repository.summary import list_savepoints
from airflow_flinkstyle.savepoint.sequence import place_of
from airflow_flinkstyle.types import Generation, id_words
from airflow_flinkstyle.wording import batch_words, moment, row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
    from airflow_flinkstyle.jobs.journal import CutoverJournal
    from airflow_flinkstyle.jobs.upgrade.context import Standby
    from airflow_flinkstyle.jobs.upgrade.upgrade import UpgradeReport
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.line import Turn
    from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
    from airflow_flinkstyle.types import Rewind

_MOST = 20
"""How many savepoints are listed at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationVersion:
    """What a generation ran."""

    generation: Generation
    script: str
    args: tuple[str, ...]
    conf: Mapping[str, str]

    def label(self) -> str:
        """Return it for a table."""
        return f"generation {self.generation}: {' '.join((self.script, *self.args))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackTarget:
    """One place to go back to."""

    version: GenerationVersion
    savepoint_id: str | None
    """None: from where the job is now, nothing repeated and nothing given up."""
    taken_at_ms: int | None
    batches: Mapping[str, int]
    behind: Mapping[str, int]
    """Query name -> batches that were committed since then on the line of the job's head."""
    renumbered: Turn | None = None
    """The start since that gave batches other numbers, so that none can be counted; None if none did."""

    def cells(self) -> tuple[str, ...]:
        """Return its row."""
        if self.savepoint_id is None or self.taken_at_ms is None:
            return ("where the job is", self.version.label(), "now", "nothing")
        when = moment(self.taken_at_ms)
        if self.renumbered is not None:
            since = f"not counted: {self.renumbered} since"
            return (self.savepoint_id, self.version.label(), f"{when}, at {batch_words(self.batches)}", since)
        counts = ", ".join(f"{count} of {name}" for name, count in sorted(self.behind.items()) if count)
        since = f"batches: {counts}" if counts else "nothing"
        return (self.savepoint_id, self.version.label(), f"{when}, at {batch_words(self.batches)}", since)


def previous(runs: JobView) -> GenerationVersion:
    """Return the newest version that ran before the one that runs, and was another one.

    Raises:
        JobNotRunningError: If there is none, or if it does not know what was done to the state since.
    """
    versions = list(_versions(runs))
    now = versions[0] if versions else None
    for version in versions[1:]:
        if now is not None and _settings(version) != _settings(now):
            _require_known_state(runs, now, version)
            return version
    raise JobNotRunningError(
        f"Job {runs.job} was expected to have run another version before, found none.",
        state_after="Nothing was stopped.",
        remedy="Name a savepoint to go back to, or upgrade to the version that is to run.",
    )


def _require_known_state(runs: JobView, now: GenerationVersion, version: GenerationVersion) -> None:
    if changed := state_changes_unknown(now.conf, version.conf):
        raise JobNotRunningError(
            f"Job {runs.job} was expected to have the state of {version.label()}, found it changed since, by "
            f"{changed[-1].changes}: that version would go on with values that mean something else to it.",
            state_after="Nothing was stopped.",
            remedy="Name a savepoint from before the change to go back to; or upgrade to that version with "
            "state_changes that undo it.",
        )


def require_savepoint(runs: JobView, savepoint_id: str) -> Generation:
    """Return the generation that took a savepoint: its version goes back to it.

    Raises:
        BadInputError: If no run of this job took it; or if it is of another cluster than the job reads now,
            where producers may be fenced off.
    """
    manifest = runs.repository.read(savepoint_id)
    taken_from = manifest.taken_from_generation
    if taken_from is None or runs.board.claim(Generation(taken_from)) is None:
        raise BadInputError(
            f"Savepoint {savepoint_id} was expected to be of a run of job {runs.job}, found none.",
            state_after="Nothing was stopped.",
            remedy="Start the job from it with StartStreamingJobOperator, which names the script.",
        )
    last = runs.board.current_heartbeat()
    queries = last.queries.values() if last is not None else ()
    reads = {id_words(source.cluster_id) for query in queries for source in query.sources.values()}
    read = {id_words(position.cluster_id) for query in manifest.queries for position in query.kafka.values()}
    if reads and not read <= reads:
        raise BadInputError(
            f"Savepoint {savepoint_id} was expected to be of Kafka cluster {', '.join(sorted(reads))}, which "
            f"job {runs.job} reads now, found {', '.join(sorted(read - reads))}: it is from before a "
            "migration.",
            state_after="Nothing was stopped.",
            remedy="Fail back first (DAG fail_back), which takes the producers along; or name a savepoint "
            "that was taken since.",
        )
    return Generation(taken_from)


def rollback_targets(runs: JobView) -> list[RollbackTarget]:
    """Return where the job can be brought back to, the nearest first."""
    found = {version.generation: version for version in _versions(runs)}
    last = runs.board.current_heartbeat()
    now = last.batches() if last is not None else {}
    targets = []
    with suppress(JobNotRunningError):  # it has run one version only
        before = previous(runs)
        targets.append(
            RollbackTarget(version=before, savepoint_id=None, taken_at_ms=None, batches={}, behind={})
        )
    listed = list_savepoints(runs.repository)[:_MOST]
    earliest = min((one.taken_from_generation or 0 for one in listed), default=0)
    line = read_line(runs.board, back_to=earliest)
    for one in listed:
        taken_from = one.taken_from_generation
        version = found.get(Generation(taken_from)) if taken_from is not None else None
        where = place_of(one.cut, line) if line is not None else None
        if version is not None and isinstance(where, OnLine):
            behind = {name: max(0, now.get(name, batch) - batch) for name, batch in one.batches.items()}
            target = RollbackTarget(
                renumbered=where.renumbered,
                version=version,
                savepoint_id=one.savepoint_id,
                taken_at_ms=one.taken_at_ms,
                batches=one.batches,
                behind=behind,
            )
            targets.append(target)
    return targets


def as_markdown(targets: Sequence[RollbackTarget]) -> str:
    """Render the table."""
    heads = ("savepoint", "version", "taken", "committed since")
    return "\n".join([row(heads), "|---" * len(heads) + "|", *(row(target.cells()) for target in targets)])


def _versions(runs: JobView) -> Iterator[GenerationVersion]:
    """Yield what ran, from the job's head backwards along its line."""
    current = runs.board.current()
    generation = current.value.head if current else None
    while generation is not None:
        claim = runs.board.claim(generation)
        if claim is None:
            return
        if claim.launch:
            spec, _ = from_launch(claim.launch, secret_env={})
            yield GenerationVersion(generation=generation, script=spec.script, args=spec.args, conf=spec.conf)
        order = runs.board.takeover_order(generation)
        generation = order.parent.generation if order is not None else None


def _settings(version: GenerationVersion) -> tuple[object, ...]:
    return (version.script, version.args, dict(version.conf))


def roll_back_to(
    client: JobClient,
    journal: CutoverJournal,
    *,
    savepoint_id: str | None,
    rewind: Rewind,
    skip_known_batches: bool,
    restore_tables: bool,
    standby: Standby,
    rehearse: Rehearse | None,
    settings: CutoverSettings,
) -> UpgradeReport:
    """Let the version before continue where the job is, or the one of a savepoint from there.

    Args:
        client: The job; it must run.
        journal: Made with ``UPGRADE_PHASES``; a retry continues it.
        savepoint_id: Where to go back to; None: to the version before, from where the job is.
        rewind: With a savepoint: what becomes of the batches that were committed since.
        skip_known_batches: Accept that a sink or a function leaves out batch ids that it has seen.
        restore_tables: Take back what the job has written since into tables of Delta and Iceberg.
        standby: As for an upgrade.
        rehearse: As for an upgrade.
        settings: How long each part may take.

    Raises:
        BadInputError: If a choice is missing, or made where there is none.
        JobNotRunningError: If no other version ran before.
        FlinkstyleError: As ``Upgrade.run``.
    """
    if savepoint_id is None and (rewind != "continue" or restore_tables):
        raise BadInputError(
            f"A rewind was expected with a savepoint only, found rewind={rewind!r}, restore_tables="
            f"{'yes' if restore_tables else 'no'!r} without one.",
            state_after="Nothing was stopped.",
            remedy="Name a savepoint, or leave both out to continue where the job is.",
        )
    recorded = (
        journal.approve({"generation": _generation_of(client.view, savepoint_id)})
        if not journal.approved()
        else {}
    )
    # As recorded: a retry may find another version running.
    chosen = Generation((journal.approved() or recorded)["generation"])
    spec, target = client.view.launch_of(chosen)
    back_to = None
    if savepoint_id is not None:
        back_to = FromSavepoint(
            savepoint_id=savepoint_id,
            rewind=rewind,
            skip_known_batches=skip_known_batches,
            restore_tables=restore_tables,
        )
    return Upgrade(
        client=client,
        journal=journal,
        spec=spec,
        target=target,
        standby=standby,
        rehearse=rehearse if standby == "warm" else None,
        settings=settings,
        back_to=back_to,
    ).run()


def _generation_of(runs: JobView, savepoint_id: str | None) -> Generation:
    if savepoint_id is None:
        return previous(runs).generation
    return require_savepoint(runs, savepoint_id)
