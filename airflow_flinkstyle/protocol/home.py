"""``<job>/home.json``: whether plain Spark runs a job, or this package does, for one that moved between them.

A job that plain Spark runs has no generation, so nothing in ``runs/`` shows it. This record does: whether its
savepoints are only taken from outside, whether it was adopted, or whether it was given back. It binds the
next start until a driver of this package has taken the job over. From then on the line of the head shows
where the job is, and the record of an adoption only names its old checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.storage.keys import Name
from airflow_flinkstyle.typed_json import stored
from airflow_flinkstyle.types import BatchId, Generation, Text

HOME_KEY = "home.json"
ADOPTED_KEY = "_adopted.json"
"""In a checkpoint location of plain Spark, beside ``metadata``: Spark reads no file of this name."""
HomeState = Literal["watched", "adopted", "leaving", "left"]


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideCheckpoint:
    """A checkpoint that plain Spark wrote, or is to continue in."""

    location: Text
    query_id: Text
    """Spark's query id, from the checkpoint's ``metadata`` file."""
    batch_id: BatchId
    """Its newest committed batch when this was written."""
    planned: bool
    """Whether the batch after that one was planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home(Record):
    """``home.json``: the caller's, replaced only if unchanged."""

    what: ClassVar[str] = "home"

    state: HomeState
    """``watched``: plain Spark runs it, and only its savepoints are taken; ``adopted``: the next start
    continues from ``savepoint_id``; ``leaving``: it has stopped here, and its checkpoints are being written
    where plain Spark is to find them; ``left``: plain Spark has it again."""
    checkpoints: Mapping[Name, OutsideCheckpoint]
    """By query."""
    savepoint_id: Name | None
    """``adopted``: the job continues from it; ``leaving``, ``left``: plain Spark gets it; else None."""
    after: Generation | None
    """The job's head when this was written; None before its first generation."""
    by: str
    """Who asked for it, for people."""
    at_ms: int
    """Epoch milliseconds, UTC."""

    def binds(self, head: Generation | None) -> bool:
        """Return whether no driver of this package has taken the job over since this was written."""
        return self.after == head


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedMark(Record):
    """``_adopted.json`` in a checkpoint location: which job has adopted it."""

    what: ClassVar[str] = "mark of an adoption"

    root: str
    job: Name
    query: Name
    batch_id: BatchId
    savepoint_id: Name
    at_ms: int
