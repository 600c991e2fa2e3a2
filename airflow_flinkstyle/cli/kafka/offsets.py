"""``flinkstyle offsets plan|apply``: move a savepoint's positions to another cluster."""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType

from airflow_flinkstyle.cli.factories import repository_of
from airflow_flinkstyle.cli.kafka.options import (
    ConnectorName,
    IgnoredHeaders,
    KeepsOffsets,
    MirrorIsolation,
    OffsetsTopic,
    Policy,
    SoleWriter,
    SourceAlias,
    SourceConfig,
    SourceConn,
    TargetAlias,
    TargetConfig,
    TargetConn,
    one_cluster,
    renames,
    the_cluster,
)
from airflow_flinkstyle.cli.options import AsJson, Job, Root, SavepointId
from airflow_flinkstyle.cli.output import ExitCode, show, table
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.answers.rules import proof_request, savepoint_offsets, strategy_rules
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.policies import parse_policies
from airflow_flinkstyle.kafka.settings import Isolation
from airflow_flinkstyle.rewrite.apply import apply_plan
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
from airflow_flinkstyle.rewrite.render import cells, in_words, listing, text_plot
from airflow_flinkstyle.rewrite.route import ClusterPair
from airflow_flinkstyle.rewrite.rows import MigrationStrategy
from airflow_flinkstyle.rewrite.rules import Topology
from airflow_flinkstyle.rewrite.strategies import plan_migration

_STDIN = Path("-")


def plan(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    source_config: SourceConfig = None,
    source_conn_id: SourceConn = None,
    target_config: TargetConfig = None,
    target_conn_id: TargetConn = None,
    source_alias: SourceAlias = None,
    target_alias: TargetAlias = None,
    policy: Policy = "identity",
    connector_name: ConnectorName = "MirrorSourceConnector",
    offsets_topic: OffsetsTopic = "",
    mirror_isolation: MirrorIsolation = "read_committed",
    sole_writer: SoleWriter = False,
    keeps_offsets: KeepsOffsets = False,
    ignored_headers: IgnoredHeaders = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            help="OLD=NEW: a topic's name on the target, where the policy does not give it; repeatable."
        ),
    ] = None,
    isolation: Annotated[
        Isolation, typer.Option(help="The job's own kafka.isolation.level.")
    ] = "read_uncommitted",
    way: Annotated[
        MigrationStrategy,
        typer.Option(
            help="proved: by comparing both logs; new_identity: at a position you pick (--start); "
            "producers_first: once the old log is read to its fenced end, the new one from its start."
        ),
    ] = "proved",
    start: Annotated[
        str | None,
        typer.Option(
            help="Where to begin what has no position to continue from: earliest, latest, "
            "timestamp:2026-11-21T10:00:00Z, group:NAME, file:PATH, savepoint:ID, shift:-100 or "
            "shift:-5m; or rules by topic and partition, as JSON."
        ),
    ] = None,
    topology: Annotated[
        Topology, typer.Option(help="repartitioned: topics of another shape begin at --start.")
    ] = "refuse",
    sources: Annotated[
        str | None,
        typer.Option(
            help='Sources that move otherwise, as JSON: {"query/source": {"way", "start", "topology"}}.'
        ),
    ] = None,
    preview: Annotated[
        bool, typer.Option("--preview", help="While producers write: only show; no rewrite takes it.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the approval table.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find where a savepoint's positions stand on another cluster; writes nothing there.

    As JSON it is the plan that apply takes. Ends with 3 if a partition has no safe offset.
    """
    mirror = {
        "source_alias": source_alias,
        "target_alias": target_alias,
        "replication_policy": policy,
        "connector_name": connector_name,
        "offsets_topic": offsets_topic,
        "isolation": mirror_isolation,
        "sole_writer": sole_writer,
        "keeps_offsets": keeps_offsets,
        "ignored_headers": ignored_headers,
    }
    repository = repository_of(root, job)
    found = plan_migration(
        repository.read(savepoint_id),
        ClusterPair(
            source=one_cluster(source_config, source_conn_id, "source"),
            target=the_cluster(target_config, target_conn_id, "target"),
        ),
        proof_request(mirror=mirror, rename=renames(rename), isolation=isolation, preview=preview),
        strategy_rules(
            way=way,
            start=start,
            topology=topology,
            sources=_sources(sources),
            savepoint=savepoint_offsets(repository),
        ),
    )
    text = found.as_markdown() if markdown else Group(*_tables(found))
    show(json.loads(found.to_json()), text, as_json=as_json)
    if found.refused:
        raise typer.Exit(ExitCode.PARTLY)


def apply(
    plan_file: Annotated[
        Path,
        typer.Argument(help="What offsets plan --json printed; - for standard input.", show_default=False),
    ],
    root: Root,
    target_config: TargetConfig = None,
    target_conn_id: TargetConn = None,
    allow: Annotated[
        str,
        typer.Option(help="Verdicts that are good enough: exact, bounded, chosen, or CLASS<=NUMBER."),
    ] = "exact",
    as_json: AsJson = False,
) -> None:
    """Check a plan against the live target, then write the rewritten savepoint.

    No job is touched. Doing it again changes nothing.
    """
    planned = OffsetRewritePlan.from_json(_read(plan_file))
    repository = repository_of(root, planned.job)
    target = the_cluster(target_config, target_conn_id, "target")
    rewritten = apply_plan(
        planned,
        repository.read(planned.savepoint_id),
        repository,
        live=describe(target, tuple(planned.target.topics)),
        allow=parse_policies(allow),
    )
    document = {
        "savepoint_id": rewritten.savepoint_id,
        "job": rewritten.job,
        "parent": rewritten.parent,
        "cluster_id": planned.target_cluster_id,
        "partitions": len(planned.moves),
    }
    text = (
        f"Savepoint {rewritten.savepoint_id} is {rewritten.parent} moved to cluster "
        f"{planned.target_cluster_id}: {len(planned.moves):,} partitions"
    )
    show(document, text, as_json=as_json)


def _tables(found: OffsetRewritePlan) -> Iterator[RenderableType]:
    yield text_plot(found.moves)
    if found.unread:
        yield f"Nothing was read yet, and begins on the target: {', '.join(found.unread)}."
    for title, moves in (("", found.moves), ("\nThe end of the batch that is not committed", found.planned)):
        chosen = listing(moves)
        if chosen.moves:
            columns = ("query", "topic", "#partition", "#from", "to", "#shift")
            yield table(*columns, rows=[cells(move) for move in chosen.moves], title=title)
        if chosen.left_out:
            yield f"Not listed one by one: {in_words(chosen.left_out)}."
    if found.strategies:
        rows = [
            (f"{w.query}/{w.source}", w.strategy, w.precondition, w.consequence) for w in found.strategies
        ]
        yield table("source", "strategy", "holds if", "then", rows=rows, title="")
    if not found.settled:
        yield "Preview: producers were at work. The offsets are proved again before any is used."


def _sources(text: str | None) -> Mapping[str, Any] | None:
    try:
        found = json.loads(text) if text else None
    except ValueError as error:
        raise typer.BadParameter(f"expected JSON, found {text!r}", param_hint="--sources") from error
    if found is not None and not (
        isinstance(found, dict) and all(isinstance(rule, dict) for rule in found.values())
    ):
        raise typer.BadParameter("expected a mapping of mappings", param_hint="--sources")
    return found


def _read(plan_file: Path) -> str:
    try:
        return sys.stdin.read() if plan_file == _STDIN else plan_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(
            f"{plan_file} should hold a plan as JSON, but it cannot be read ({type(error).__name__}).",
            state_after="Nothing was written.",
            remedy="Write it with: flinkstyle offsets plan ... --json > FILE",
        ) from error
