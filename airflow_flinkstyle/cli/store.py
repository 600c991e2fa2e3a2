"""``flinkstyle store check``: may savepoints live there?"""

from typing import Annotated

import typer
from rich.console import Console

from airflow_flinkstyle.cli.options import AsJson
from airflow_flinkstyle.cli.output import ExitCode, show
from airflow_flinkstyle.storage.contract import GUARANTEES, check_store
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.versions import RULE, versioning_of


def check(
    uri: Annotated[str, typer.Argument(help="s3://bucket/prefix or an absolute path.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Try on a store everything that savepoints rely on, below a prefix that is removed again.

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
