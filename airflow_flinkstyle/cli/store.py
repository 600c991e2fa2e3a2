"""``flinkstyle store check|adopt-root|usage``: may savepoints live there, whose are they, what is kept?"""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console, Group

from airflow_flinkstyle.cli.factories import board_of, repository_of, require_job
from airflow_flinkstyle.cli.options import AsJson, Job, Root, Yes
from airflow_flinkstyle.cli.output import ExitCode, confirm, moment, show, table
from airflow_flinkstyle.jobs.usage import Usage, usage_of
from airflow_flinkstyle.protocol.board import adopt_root
from airflow_flinkstyle.storage.contract import GUARANTEES, check_store
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.versions import RULE, versioning_of
from airflow_flinkstyle.wording import size


def check(
    uri: Annotated[str, typer.Argument(help="s3://bucket/prefix or an absolute path.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Try on a store everything that savepoints rely on; nothing stays.

    Ends with 3 if the store does not do all of it. Warns of a bucket that keeps every version for ever.
    """
    store = open_store(uri)
    with Console(stderr=True).status("") as status:
        findings = check_store(store, checking=lambda tried: status.update(f"trying: {tried.name}"))
    versioning = versioning_of(store)
    warnings = [f"{versioning} {RULE}"] if versioning is not None and versioning.expire_days is None else []
    document = {
        "uri": store.uri,
        "guarantees": [guarantee.name for guarantee in GUARANTEES],
        "findings": list(findings),
        "warnings": warnings,
    }
    lines = [f"{found.guarantee}: {found.problem}\n  {found.remedy}" for found in findings]
    verdict = f"{store.uri} gives {len(GUARANTEES) - len(findings)} of {len(GUARANTEES)} guarantees."
    lines += [f"Warning: {warning}" for warning in warnings]
    show(document, "\n".join([*lines, verdict]), as_json=as_json)
    if findings:
        raise typer.Exit(ExitCode.PARTLY)


def adopt(
    uri: Annotated[str, typer.Argument(help="Where the savepoint root is now.", show_default=False)],
    copy: Annotated[
        bool,
        typer.Option(
            "--copy",
            help="The root that it was copied from is still used: this one gets an id of its own.",
        ),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let jobs start below a savepoint root that was moved here, or copied by hand.

    A moved root keeps its id, and its jobs continue in their checkpoints. A copy gets another id; its jobs
    start from their savepoints, in places of their own.
    """
    store = open_store(uri)
    what = "a copy, beside the root that it was made from" if copy else "moved, and nothing else uses it"
    confirm(f"Is savepoint root {store.uri} {what}?", yes=yes)
    root = adopt_root(store, is_copy=copy)
    document = {"uri": root.uri, "root_id": root.root_id}
    show(document, f"Savepoint root {root.uri} has id {root.root_id}.", as_json=as_json)


def usage(root: Root, job: Job, as_json: AsJson = False) -> None:
    """Show what a job keeps, how much, and why: savepoints, who holds them, and checkpoints.

    A checkpoint on another machine's disk, or on HDFS, is listed without its size.
    """
    require_job(root, job)
    found = usage_of(board_of(root, job), repository_of(root, job))
    show({**asdict(found), "total_bytes": found.total_bytes}, _tables(found), as_json=as_json)


def _tables(found: Usage) -> Group:
    savepoints = [
        (one.savepoint_id, size(one.size_bytes), size(one.own_bytes), one.reason) for one in found.savepoints
    ]
    held = [
        (
            one.savepoint_id,
            one.holder,
            one.by,
            moment(one.since_ms),
            "has ended: the next prune releases it" if one.has_ended else one.reason,
        )
        for one in found.references
    ]
    checkpoints = [
        (
            ", ".join(map(str, one.generations)),
            size(one.size_bytes) if one.size_bytes is not None else "not seen from here",
            "the next prune frees it: " + one.reason if one.goes else one.reason,
        )
        for one in found.checkpoints
    ]
    return Group(
        table("savepoint", "size", "only its own", "why", rows=savepoints),
        table("savepoint", "holder", "by", "since (UTC)", "why", rows=held),
        table("checkpoint of generation", "size", "why", rows=checkpoints),
        f"{size(found.total_bytes)}: savepoints {size(found.blob_bytes)}, of which no savepoint needs "
        f"{size(found.unneeded_bytes)}; checkpoints {size(found.checkpoint_bytes)}",
    )
