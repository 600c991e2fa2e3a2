"""``flinkstyle transactions list|describe|abort``: which transactions hold back read_committed readers."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from airflow_flinkstyle.cli.factories import client_of, jobs_of
from airflow_flinkstyle.cli.kafka.options import KafkaConfig, KafkaConn, the_cluster
from airflow_flinkstyle.cli.options import AsJson, Yes
from airflow_flinkstyle.cli.output import confirm, moment, show, table
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.jobs.status import JobStatus, NeverStarted, Running, Starting, describe_status
from airflow_flinkstyle.kafka.audit.open_transactions import OpenTransaction, open_transactions
from airflow_flinkstyle.kafka.audit.transactions import (
    HeldPartition,
    abort_transactions,
    age_ms,
    held_partitions,
    matching,
    require_idle,
)
from airflow_flinkstyle.kafka.errors import TRANSACTION_IN_USE

Prefix = Annotated[
    str, typer.Option(help="What the transactional ids begin with; a sink's begin with its lineage.")
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", help="Only transactions with records in this topic; may be repeated."),
]
_NONE = "No such transaction is open"
_UNKNOWN = "none in the transaction log; if that stays so, the transaction hangs"


def list_open(
    config: KafkaConfig = None,
    conn_id: KafkaConn = None,
    prefix: Prefix = "",
    topics: Topics = None,
    as_json: AsJson = False,
) -> None:
    """List the open transactions, the oldest first. Ages are by two clocks."""
    found = matching(open_transactions(the_cluster(config, conn_id, "kafka")), prefix, topics or ())
    show({"transactions": _documents(found)}, _table(found) if found else _NONE, as_json=as_json)


def describe(
    config: KafkaConfig = None,
    conn_id: KafkaConn = None,
    prefix: Prefix = "",
    topics: Topics = None,
    as_json: AsJson = False,
) -> None:
    """Show the open transactions, and what is hidden in the topics they write to, or in those given."""
    cluster = the_cluster(config, conn_id, "kafka")
    all_open = open_transactions(cluster)
    found = matching(all_open, prefix, topics or ())
    shown_topics = set(topics or ()) or {topic for one in found for topic, _ in one.partitions}
    held = held_partitions(cluster, shown_topics, all_open)
    document = {
        "transactions": _documents(found),
        "partitions": [{**asdict(one), "hidden": one.hidden} for one in held],
    }
    show(document, Group(*_described(found, held)), as_json=as_json)


def abort(
    prefix: Prefix,
    config: KafkaConfig = None,
    conn_id: KafkaConn = None,
    root: Annotated[
        str | None,
        typer.Option(
            envvar="FLINKSTYLE_ROOT",
            help="Savepoint root: its records show which job a transaction belongs to, and whether it runs.",
            show_default=False,
        ),
    ] = None,
    min_age_s: Annotated[
        float | None,
        typer.Option(
            "--min-age",
            help="For a transaction of no known job: seconds without activity after which its producer "
            "counts as dead; more than a batch takes.",
            min=0,
            show_default="each transaction's own time-out",
        ),
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Abort the open transactions of dead producers, and fence these producers.

    All are refused if the producer of one may be at work: its job runs, or it was active recently.
    """
    if not prefix:
        raise typer.BadParameter("an empty one matches every application", param_hint="--prefix")
    cluster = the_cluster(config, conn_id, "kafka")
    found = [one for one in matching(open_transactions(cluster), prefix) if one.state == "Ongoing"]
    owners = _owners(root) if root else {}
    _require_ended(found, owners)
    unknown = [one for one in found if one.lineage not in owners]
    require_idle(unknown, now_ms(), None if min_age_s is None else round(min_age_s * 1000))
    if found:
        names = ", ".join(one.transactional_id for one in found)
        confirm(f"Abort {len(found)} transactions ({names}) on {cluster}?", yes=yes)
    aborted = abort_transactions(cluster, found)
    ids = [one.transactional_id for one in aborted]
    text = f"Aborted {len(ids)}: {', '.join(ids)}" if ids else f"{_NONE}; nothing was aborted"
    show({"aborted": ids}, text, as_json=as_json)


def _owners(root: str) -> dict[str, dict[str, JobStatus]]:
    """Return by lineage which jobs last wrote under it, and what each is doing."""
    owners: dict[str, dict[str, JobStatus]] = {}
    for job in jobs_of(root):
        status = client_of(root, job).view.settled_status()
        heartbeat = None if isinstance(status, NeverStarted) else status.run.heartbeat
        for query in heartbeat.queries.values() if heartbeat else ():
            reported = query.sinks.lineages if query.sinks else ()
            known = {query.query_id} if query.query_id is not None else set()  # else it has not started yet
            for lineage in known | {one.lineage for one in reported}:
                owners.setdefault(lineage, {})[job] = status
    return owners


def _require_ended(found: Collection[OpenTransaction], owners: Mapping[str, Mapping[str, JobStatus]]) -> None:
    for one in found:
        for job, status in owners.get(one.lineage, {}).items():
            if isinstance(status, (Running, Starting)):
                raise TRANSACTION_IN_USE.with_text(
                    f"Job {job}, whose transaction {one.transactional_id} is, was expected to have ended, "
                    f"but {describe_status(status)}.",
                    state_after="No transaction was aborted.",
                    remedy="Stop the job first; its next start ends its open transactions.",
                )


def _documents(found: Collection[OpenTransaction]) -> list[dict[str, object]]:
    now = now_ms()
    return [
        {
            "transactional_id": one.transactional_id,
            "producer_id": one.producer_id,
            "epoch": one.epoch,
            "state": one.state,
            "started_ms": one.started_ms,
            "updated_ms": one.updated_ms,
            "idle_ms": age_ms(one, now),
            "timeout_ms": one.timeout_ms,
            "partitions": [{"topic": topic, "partition": number} for topic, number in sorted(one.partitions)],
        }
        for one in found
    ]


def _table(found: Collection[OpenTransaction]) -> RenderableType:
    now = now_ms()
    return table(
        *("transactional id", "state", "#partitions", "began (UTC)", "#idle for s", "#ends by itself in s"),
        rows=[
            (
                *(one.transactional_id, one.state, len(one.partitions), moment(one.started_ms)),
                age_ms(one, now) // 1000,
                max(0, one.started_ms + one.timeout_ms - now) // 1000,
            )
            for one in found
        ],
    )


def _described(
    found: Collection[OpenTransaction], held: Collection[HeldPartition]
) -> Iterator[RenderableType]:
    yield _table(found) if found else _NONE
    if held:
        rows = [
            (*(one.topic, one.partition, one.last_stable, one.end, one.hidden), ", ".join(one.by) or _UNKNOWN)
            for one in held
        ]
        columns = ("topic", "#partition", "#readable to", "#end", "#hidden", "by")
        yield table(*columns, rows=rows, title="\nHidden from read_committed readers, in offsets")
