"""Give the sources of a savepoint's queries a new identity: a new savepoint whose parent is the old one.

Only the offset logs and ``sources/`` differ from the parent. State, commit log, watermark and pinned confs
stay byte for byte. Spark's first start requires both offset logs to have as many sources as the script, so
the one before is changed, too, as if the last batch had read nothing from a source with a new position.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import offset_log, schema_tracking
from airflow_flinkstyle.kafka.cluster import require_positions
from airflow_flinkstyle.rewrite.errors import NOTHING_WRITTEN, PLANNED_BATCH, SOURCE_CHANGE
from airflow_flinkstyle.rewrite.source_changes import ReorderSources, consequences, new_layout, renaming
from airflow_flinkstyle.savepoint.files.derive import changed_file, publish_derived
from airflow_flinkstyle.savepoint.ids import new_savepoint_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.rewrite.source_changes import PlannedSource, RenameSources, SourceChange
    from airflow_flinkstyle.savepoint.manifest import FileEntry, Manifest, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edit:
    """How one query changes."""

    slots: tuple[PlannedSource, ...]
    logs: Mapping[str, OffsetLog]
    """The changed offset logs by path."""
    planned: str | None
    """The planned batch, where only names change."""
    consequences: tuple[str, ...]


def changed_id(manifest: Manifest, changes: Sequence[SourceChange]) -> str:
    """Return the id of the savepoint that the changes make; the same changes give the same id."""
    listed = "\n".join(map(repr, _ordered(changes)))
    digest = hashlib.sha256(f"{manifest.savepoint_id}\n{listed}".encode()).hexdigest()
    return new_savepoint_id(manifest.job, f"sources {digest}")


def change_sources(
    manifest: Manifest, repository: SavepointRepository, changes: Sequence[SourceChange]
) -> Manifest:
    """Write the savepoint with changed sources and return its manifest; doing it again changes nothing.

    Args:
        manifest: The savepoint. Queries without a change stay as they are.
        repository: Holds the savepoint, gets the new one.
        changes: What to change; their positions were checked against the live clusters.

    Raises:
        FlinkstyleError: ``SOURCE_CHANGE`` if a change names what is not there, or leaves a query without
            sources.
        FlinkstyleError: ``PLANNED_BATCH`` if a query to change has a planned batch.
        BadInputError: If a position is empty or not concrete.
    """
    edits = _edits(manifest, repository, changes)

    def change(query: QuerySnapshot) -> QuerySnapshot:
        return _changed_query(query, edits[query.name], repository) if query.name in edits else query

    evidence = {f"{name}/sources": _evidence(edit) for name, edit in edits.items()}
    result = publish_derived(manifest, repository, changed_id(manifest, changes), change, evidence=evidence)
    log.info("Savepoint %s is %s with other sources", result.savepoint_id, result.parent)
    return result


def are_called(query: QuerySnapshot, names: Mapping[str, str], repository: SavepointRepository) -> bool:
    """Return whether a query's sources have the new names of ``RenameSources`` already."""
    newest = dict(_offset_logs(query, repository))[f"offsets/{query.batch_id}"]
    return newest.sources.keys() == set(names.values())


def preview_changes(
    manifest: Manifest, repository: SavepointRepository, changes: Sequence[SourceChange]
) -> Mapping[str, tuple[str, ...]]:
    """Return per query what the changes mean, after all the checks and without a write."""
    return {name: edit.consequences for name, edit in _edits(manifest, repository, changes).items()}


def _edits(
    manifest: Manifest, repository: SavepointRepository, changes: Sequence[SourceChange]
) -> dict[str, _Edit]:
    """Check everything and return how each query with changes is edited; nothing is written yet."""
    names = [query.name for query in manifest.queries]
    unknown = sorted({change.query for change in changes} - set(names))
    if unknown or not changes:
        expected = f"changes of its queries ({', '.join(names)})"
        raise SOURCE_CHANGE.error(
            where=manifest.savepoint_id, expected=expected, found=", ".join(unknown) or "none"
        )
    grouped = {name: [change for change in _ordered(changes) if change.query == name] for name in names}
    return {
        query.name: _edit(query, repository, grouped[query.name])
        for query in manifest.queries
        if grouped[query.name]
    }


def _ordered(changes: Sequence[SourceChange]) -> list[SourceChange]:
    """Return the changes in a fixed order: the same set makes the same savepoint."""
    return sorted(changes, key=repr)


def _edit(query: QuerySnapshot, repository: SavepointRepository, changes: Sequence[SourceChange]) -> _Edit:
    logs = dict(_offset_logs(query, repository))
    newest = logs[f"offsets/{query.batch_id}"]
    renamed = renaming(query.name, newest, changes)
    _require_changeable(query, repository, changes, keeps_plan=renamed is not None)
    slots = new_layout(query.name, newest, changes)
    if renamed is not None:
        return _renamed(query, renamed, slots, logs)
    for slot in slots:
        if slot.position is not None:
            require_positions(slot.position.offsets)
    return _Edit(
        slots=slots,
        logs={path: parsed.with_sources(_sources(parsed, slots)) for path, parsed in logs.items()},
        planned=None,
        consequences=consequences(newest, changes),
    )


def _renamed(
    query: QuerySnapshot,
    change: RenameSources,
    slots: tuple[PlannedSource, ...],
    logs: Mapping[str, OffsetLog],
) -> _Edit:
    planned = query.planned_offsets
    if planned is not None:
        planned = offset_log.parse(planned).renamed(change.names).render()
    return _Edit(
        slots=slots,
        logs={path: parsed.renamed(change.names) for path, parsed in logs.items()},
        planned=planned,
        consequences=consequences(logs[f"offsets/{query.batch_id}"], [change]),
    )


def _require_changeable(
    query: QuerySnapshot,
    repository: SavepointRepository,
    changes: Sequence[SourceChange],
    *,
    keeps_plan: bool,
) -> None:
    if query.planned_offsets is not None and not keeps_plan:
        raise PLANNED_BATCH.with_text(
            f"Query {query.name} planned batch {query.batch_id + 1} and did not commit it; its "
            "offsets do not fit the changed sources.",
            state_after=NOTHING_WRITTEN,
            remedy="Start the job once as it was so that the batch commits, stop it with a savepoint "
            "(StopStreamingJobOperator), and change that one.",
        )
    if any(schema_tracking.is_entry(entry.path) for entry in query.files):
        expected = "no source of Delta with a schemaTrackingLocation, whose log names the source's number"
        raise SOURCE_CHANGE.error(where=query.name, expected=expected, found="one")
    if any(isinstance(change, ReorderSources) for change in changes) and _has_join_state(query, repository):
        expected = "no reorder in a query with the state of a join"
        raise SOURCE_CHANGE.error(
            where=query.name, expected=expected, found="one, by which its sides could take each other's state"
        )


def _has_join_state(query: QuerySnapshot, repository: SavepointRepository) -> bool:
    """Return whether state keeps two inputs apart: by its stores' names, or (one store) by its metadata."""
    return any(
        "/left-" in entry.path
        or ("/_metadata/" in entry.path and b"symmetricHashJoin" in repository.read_file(entry))
        for entry in query.files
        if entry.path.startswith("state/")
    )


def _offset_logs(query: QuerySnapshot, repository: SavepointRepository) -> Iterator[tuple[str, OffsetLog]]:
    for batch in range(max(0, query.batch_id - 1), query.batch_id + 1):
        path = f"offsets/{batch}"
        entry = query.file(path)
        if entry is None:
            raise SOURCE_CHANGE.error(
                where=query.name, expected=f"the file {path} in the savepoint", found="none"
            )
        yield path, offset_log.parse(repository.read_file(entry).decode())


def _sources(parsed: OffsetLog, slots: Sequence[PlannedSource]) -> dict[str, str]:
    """Return a log's lines by source; a source that a log by name does not have stays absent."""
    lines = {
        slot.source: offset_log.kafka_offset(slot.position.offsets)
        if slot.position is not None
        else parsed.sources.get(slot.was or "")
        for slot in slots
    }
    return {source: line for source, line in lines.items() if line is not None}


def _changed_query(query: QuerySnapshot, edit: _Edit, repository: SavepointRepository) -> QuerySnapshot:
    replaced = {
        path: changed_file(repository, path, parsed.render().encode()) for path, parsed in edit.logs.items()
    }
    kept = [replaced.get(entry.path, entry) for entry in query.files if not _is_source(entry.path)]
    files = [*kept, *(file for slot in edit.slots for file in _source_files(query, slot, repository))]
    positions = {slot.source: slot.position or query.kafka.get(slot.was or "") for slot in edit.slots}
    return replace(
        query,
        planned_offsets=edit.planned,
        pinned_confs=edit.logs[f"offsets/{query.batch_id}"].confs,
        kafka={source: position for source, position in sorted(positions.items()) if position is not None},
        tables={
            slot.source: query.tables[slot.was]
            for slot in sorted(edit.slots, key=lambda slot: slot.source)
            if slot.position is None and slot.was is not None and slot.was in query.tables
        },
        files=tuple(sorted(files, key=lambda entry: entry.path)),
    )


def _source_files(
    query: QuerySnapshot, slot: PlannedSource, repository: SavepointRepository
) -> Iterator[FileEntry]:
    """Yield a source's own files: moved with it, or the one in which Kafka's source notes where it began."""
    if slot.position is not None:
        raw = offset_log.kafka_offset(slot.position.offsets)
        yield changed_file(repository, f"sources/{slot.source}/0", f"\0v1\n{raw}".encode())
        return
    before = f"sources/{slot.was}/"
    for entry in query.files:
        if entry.path.startswith(before):
            yield replace(entry, path=f"sources/{slot.source}/{entry.path.removeprefix(before)}")


def _is_source(path: str) -> bool:
    return path.startswith("sources/")


def _evidence(edit: _Edit) -> str:
    now = {slot.source: slot.was if slot.position is None else "chosen" for slot in edit.slots}
    return json.dumps({"changes": list(edit.consequences), "sources": now})
