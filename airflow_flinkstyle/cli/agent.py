"""``flinkstyle agent pack``: the agent as files, for drivers where this package is not installed."""

from pathlib import Path
from typing import Annotated

import typer

from airflow_flinkstyle import __version__
from airflow_flinkstyle.cli.options import AsJson
from airflow_flinkstyle.cli.output import show
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.packing import pack_agent


def pack(
    folder: Annotated[Path, typer.Argument(help="Where the two files go; it is made.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Write the agent as a zip for Spark's --py-files, and its launcher, which belongs beside the zip.

    Copy both to where the cluster's nodes find them, and name the zip as "agent-path" in the Spark
    connection's extra, with "agent": "py-files". YARN needs none of it: a start uploads them.
    """
    try:
        packed = pack_agent(folder)
    except OSError as error:
        raise BadInputError(
            f"A folder that can be written was expected, found {folder}: {error}.",
            state_after="No agent was written, or a part of one.",
            remedy="Give another folder.",
        ) from error
    document = {
        "version": __version__,
        "archive": str(packed.archive),
        "launcher": str(packed.launcher),
        "bytes": packed.archive.stat().st_size,
    }
    show(document, f"{packed.archive}\n{packed.launcher}", as_json=as_json)
