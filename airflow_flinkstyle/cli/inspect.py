"""``flinkstyle savepoint list|show|diff``: what there is."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from airflow_flinkstyle.cli.factories import repository_of, require_job
from airflow_flinkstyle.cli.options import AsJson, Job, Root, SavepointId
from airflow_flinkstyle.cli.output import batches, moment, note, show, table
from airflow_flinkstyle.savepoint.blobs.references import Reference, pins
from airflow_flinkstyle.savepoint.diff import FileSum, QueryDiff, SavepointDiff, diff_savepoints
from airflow_flinkstyle.savepoint.files.verified import (
    DamagedRecord,
    VerifiedRecord,
    damaged_records,
    verified_records,
)
from airflow_flinkstyle.savepoint.manifest import QuerySnapshot
from airflow_flinkstyle.savepoint.manifest_json import to_json
from airflow_flinkstyle.savepoint.repository.summary import read_listing
from airflow_flinkstyle.wording import size


def list_savepoints(
    root: Root,
    job: Job,
    limit: Annotated[int | None, typer.Option(help="Only the newest so many.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """List the savepoints of a job, the newest first, abandoned ones last."""
    require_job(root, job)
    repository = repository_of(root, job)
    listing = read_listing(repository)
    beside = {one.savepoint.savepoint_id: one.why for one in listing.beside}
    found = (*listing.savepoints, *(one.savepoint for one in listing.beside))[:limit]
    pinned, passed, failed = pins(repository), verified_records(repository), damaged_records(repository)
    rows: list[tuple[object, ...]] = [
        (
            one.savepoint_id,
            moment(one.taken_at_ms),
            one.taken_from_generation,
            batches(one.batches),
            one.files,
            size(one.size_bytes),
            one.alignment,
            one.spark_version,
            _checked(passed.get(one.savepoint_id), failed.get(one.savepoint_id)),
            pinned[one.savepoint_id].reason if one.savepoint_id in pinned else None,
            beside.get(one.savepoint_id),
        )
        for one in found
    ]
    columns = ("savepoint", "taken (UTC)", "#gen", "batches", "#files", "#size", "alignment", "spark")
    document = {
        "job": job,
        "savepoints": [
            {
                **asdict(one),
                "verified": passed.get(one.savepoint_id),
                "damaged": failed.get(one.savepoint_id),
                "pinned": pin_document(pinned.get(one.savepoint_id)),
                "beside": beside.get(one.savepoint_id),
            }
            for one in found
        ],
        "damaged": [asdict(one) for one in listing.damaged],
    }
    rows += [(one.savepoint_id, "damaged", *[None] * 9) for one in listing.damaged]
    for one in listing.damaged:
        note(f"{one.problem} {one.remedy}")
    show(document, table(*columns, "verified", "pinned", "beside the line", rows=rows), as_json=as_json)


def _checked(passed: VerifiedRecord | None, failed: DamagedRecord | None) -> str | None:
    """Return how the newest check went."""
    if failed is not None:
        return f"damaged at {moment(failed.at_ms)}: {failed.found}"
    return f"{passed.level} at {moment(passed.at_ms)}" if passed is not None else None


def show_savepoint(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    files: Annotated[bool, typer.Option("--files", help="List every file too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one savepoint; as JSON, its manifest."""
    manifest = repository_of(root, job).read(savepoint_id)
    about = [
        ("savepoint", manifest.savepoint_id),
        ("job", manifest.job),
        ("taken (UTC)", moment(manifest.taken_at_ms)),
        ("generation", manifest.taken_from_generation),
        ("spark", manifest.spark_version),
        ("alignment", manifest.alignment),
        ("cut together as", manifest.cut_id),
        ("made from", manifest.parent),
        ("size", f"{size(manifest.total_bytes)} if nothing were shared"),
        *((f"evidence {name}", text) for name, text in manifest.evidence.items()),
    ]
    parts: list[RenderableType] = [table("", "", rows=about)]
    for query in manifest.queries:
        parts += _query_tables(query, files=files)
    show(json.loads(to_json(manifest)), Group(*parts), as_json=as_json)


def _query_tables(query: QuerySnapshot, *, files: bool) -> Iterator[RenderableType]:
    total = sum(entry.size_bytes for entry in query.files)
    about = [
        ("query id", query.query_id),
        ("batch", f"{query.batch_id}{' and one planned' if query.planned_offsets else ''}"),
        ("sink", query.sink),
        *((f"source {source}", position) for source, position in query.tables.items()),
        *([("sink's table", query.sink_table)] if query.sink_table else []),
        ("copied from", query.checkpoint_location),
        ("files", f"{len(query.files)}, {size(total)}"),
        *(("pinned", f"{name}={value}") for name, value in sorted(query.pinned_confs.items())),
    ]
    yield table("", "", rows=about, title=f"\nquery {query.name}")
    positions = [
        (source, position.cluster_id, topic, partition, offset)
        for source, position in query.kafka.items()
        for (topic, partition), offset in position.offsets.items()
    ]
    if positions:
        yield table("source", "cluster", "topic", "#partition", "#next offset", rows=positions)
    if query.sinks and query.sinks.lineages:
        written = [
            (one.lineage, one.cluster_id, one.control_topic, one.shards, one.completed_batch)
            for one in query.sinks.lineages
        ]
        yield table("lineage", "cluster", "control topic", "#shards", "#completed batch", rows=written)
    if files:
        listed = [(entry.path, entry.size_bytes, entry.digest) for entry in query.files]
        yield table("file", "#bytes", "digest", rows=listed)


def diff(
    before: SavepointId,
    after: SavepointId,
    root: Root,
    job: Job,
    as_json: AsJson = False,
) -> None:
    """Compare two savepoints: batches, offsets, settings, files."""
    repository = repository_of(root, job)
    found = diff_savepoints(repository.read(before), repository.read(after))
    head = f"{found.before} -> {found.after}, {found.seconds_between:,.1f} s between"
    show(found, Group(head, *_diff_tables(found)), as_json=as_json)


def _diff_tables(found: SavepointDiff) -> Iterator[RenderableType]:
    if found.spark_versions[0] != found.spark_versions[1]:
        yield f"Spark {found.spark_versions[0]} -> {found.spark_versions[1]}"
    for query in found.queries:
        yield table("", "", rows=list(_query_changes(query)), title=f"\nquery {query.name}")
        moved = [
            (change.source, change.topic, change.partition, change.before, change.after, change.records)
            for change in query.offsets
        ]
        if moved:
            columns = ("source", "topic", "#partition", "#before", "#after", "#records")
            yield table(*columns, rows=moved)


def _query_changes(query: QueryDiff) -> Iterator[tuple[str, str]]:
    yield (
        "batch",
        " -> ".join("none" if batch is None else str(batch) for batch in (query.before, query.after)),
    )
    if not query.same_query_id:
        yield "query id", "differs: another lineage of batches"
    for source, (old, new) in query.clusters.items():
        yield f"cluster of source {source}", f"{old or 'none'} -> {new or 'none'}"
    for name, (was, now) in query.tables.items():
        yield f"table of {name}", f"{was or 'none'} -> {now or 'none'}"
    for name, (old, new) in query.confs.items():
        yield name, f"{old or 'not set'} -> {new or 'not set'}"
    yield "files shared", _files(query.files.shared)
    yield "files added", _files(query.files.added)
    yield "files removed", _files(query.files.removed)


def _files(found: FileSum) -> str:
    return f"{found.files}, {size(found.size_bytes)}"


def pin_document(pin: Reference | None) -> dict[str, object] | None:
    """Return a pin as lists show it."""
    return {"reason": pin.reason, "by": pin.by, "at_ms": pin.at_ms} if pin is not None else None
