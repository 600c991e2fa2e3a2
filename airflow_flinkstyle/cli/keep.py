"""``flinkstyle savepoint pin|unpin|dispose|prune``: what stays, what goes, and why."""

import getpass
import socket
from typing import Annotated

import typer

from airflow_flinkstyle.cli.options import AsJson, Job, Root, SavepointId
from airflow_flinkstyle.cli.output import now_ms, show
from airflow_flinkstyle.cli.places import repository_of
from airflow_flinkstyle.savepoint import pins


def whoami() -> str:
    """Name this caller for people who wait for it, or wonder later."""
    return f"{getpass.getuser()}@{socket.gethostname()} (flinkstyle)"


def pin(
    savepoint_id: SavepointId,
    root: Root,
    job: Job,
    reason: Annotated[str, typer.Option(help="Why it is kept: whoever cleans up later reads it.")],
    as_json: AsJson = False,
) -> None:
    """Keep a savepoint whatever the policy says, until it is unpinned."""
    made = pins.pin(repository_of(root, job), savepoint_id, reason=reason, by=whoami(), at_ms=now_ms())
    document = {"savepoint_id": savepoint_id, "pinned": True, "reason": made.reason, "by": made.by}
    show(document, f"Savepoint {savepoint_id} is pinned by {made.by}: {made.reason}", as_json=as_json)


def unpin(savepoint_id: SavepointId, root: Root, job: Job, as_json: AsJson = False) -> None:
    """Let the policy decide on a savepoint again; it stays until the next prune."""
    repository = repository_of(root, job)
    repository.read(savepoint_id)  # a wrong id must not look like a success
    pins.unpin(repository, savepoint_id)
    document = {"savepoint_id": savepoint_id, "pinned": False, "reason": None, "by": None}
    show(document, f"Savepoint {savepoint_id} is not pinned.", as_json=as_json)
