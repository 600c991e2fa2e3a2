"""Words and numbers that must not be mixed up: an off-by-one here loses or doubles records."""

from __future__ import annotations

from typing import Annotated, Literal, NewType

from airflow_flinkstyle.typed_json import Check

Text = Annotated[str, Check("a text that is not empty", bool)]
Count = Annotated[int, Check("a number, 0 or more", lambda number: number >= 0)]

KafkaId = Annotated[str, Check("an id that Kafka gave", lambda text: text.strip("A=") != "")]
"""Of a cluster or a topic, in records as ``KafkaId | None``: None where the cluster gives none.

Some endpoints give all zeros (``AAA...``) or an empty text where they have none: these are no ids."""

ONLY_QUERY = "query"
"""Name of a job's only query if the script gives it none."""

BatchId = NewType("BatchId", int)
"""Number of a micro-batch: the file name in ``offsets/`` and ``commits/``."""

StateVersion = NewType("StateVersion", int)
"""Version of a state store: batch N reads version N and commits version N + 1."""

NextOffset = NewType("NextOffset", int)
"""Kafka offset of the next record to read; never the last one read."""

TopicPartition = tuple[str, int]
"""Topic name and partition number."""

ClaimMode = Literal["no_claim", "claim"]
"""Who owns a savepoint after a restore: its owner until then, or the restored job (Flink's words)."""

StartFrom = Literal["last_state", "checkpoint", "savepoint", "fresh"]
"""From what a job is started, as forms, operators and the command line name it."""

Rewind = Literal["continue", "fork", "re-emit"]
"""What a start does about batches that were committed after its savepoint: demand that there are none, count
on under a new query id, or use their ids again."""

RestoreTables = Literal["no", "yes"]
"""Whether a rewind puts the tables that the job's queries write to back to where they were."""

Generation = NewType("Generation", int)
"""One start of a job asked for by a caller; counts from 1 per job."""

Incarnation = NewType("Incarnation", int)
"""One driver process under a generation; counts from 1 per generation."""

Alignment = Literal["aligned", "none"]
"""``aligned``: all queries of a job are cut at the same Kafka offsets; ``none``: each where it was, so that
what one of them has read and another has not counts as at least once between them."""

OnFailedSavepoint = Literal["keep_running", "close"]
"""What a stop does whose savepoint fails: the queries resume, or the run closes in its checkpoint."""


def known_id(text: str | None) -> str | None:
    """Return an id that a cluster gave; None if its answer only means that it has none."""
    return text if text is not None and text.strip("A=") else None


def id_words(given: str | None) -> str:
    """Return an id for people."""
    return given or "(no id told)"


def ids_differ(recorded: str | None, found: str | None) -> bool:
    """Return whether two ids contradict each other; an unknown one contradicts nothing."""
    return recorded is not None and found is not None and recorded != found


def version_after(batch: BatchId) -> StateVersion:
    """Return the state version that exists once ``batch`` is committed."""
    return StateVersion(batch + 1)
