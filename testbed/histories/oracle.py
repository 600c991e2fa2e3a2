"""What is true of a job: every batch that was ever run, which of them are its state now, and who chose that.

Every batch has a number that stands in the offset log of its checkpoint, and goes with it into savepoints,
forks and rewrites. So of whatever a driver begins in it is known which line of batches that is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Sink = Literal["kafka", "delta", "foreachBatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """A promise that was broken."""

    kind: str
    """One of ``KINDS``."""
    what: str


KINDS = {
    "rewound": "a run continued behind the job's last batch, and nobody chose that",
    "abandoned": "a run continued on a line of batches that was given up, and nobody chose that",
    "foreign": "a run continued in what another root or another life of the job has left",
    "anew": "a run began without the state that the job had, and nobody chose that",
    "two-at-once": "a batch was committed behind another batch than the job's last one",
    "other-rows": "a batch number was used again for other rows, which a sink loses or doubles",
    "needed-gone": "a savepoint is gone that a run was to be started from",
    "pinned-gone": "a pinned savepoint is gone",
    "newest-gone": "a prune took the newest state of the job that could be restored",
    "green-for-nothing": "a task succeeded, and what it was asked for is not so",
    "stuck": "no rule led the job out of where it was",
    "uncounted": "the job runs, and never counts some records",
    "held": "no migration is open, and producers are held",
    "damaged": "a savepoint lacks files",
    "storage": "a prune left more than is needed",
    "checkpoints": "checkpoints of runs that were followed long ago are never freed",
    "crash": "a caller raised what is no error of the package",
    "final-unlisted": "what the list of lasting failures does not have needed a person",
    "unnamed": "an error that needs a person does not name what was answered",
}


NOT_YET = frozenset({"checkpoints"})
"""Promises that are not kept yet, and not judged."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """One batch that a driver has planned."""

    number: int
    """Of all batches of a history."""
    life: Life
    query: str
    before: Batch | None
    """Whose state it continues; None at the beginning."""
    low: int
    high: int
    """Records: from, and behind the last."""
    committed: bool = False

    def __str__(self) -> str:
        """Name it with its records."""
        return f"batch {self.number} (records {self.low} to {self.high})"


@dataclass(slots=True, kw_only=True)
class Choice:
    """What a person has chosen: to go back to these batches, or to none."""

    batches: Mapping[str, Batch | None]
    what: str
    new_sink: bool = False
    """Nothing of what was written before counts."""
    used: bool = False


@dataclass(slots=True)
class Life:
    """One job under one root, from its first start until the root is deleted."""

    name: str
    head: dict[str, Batch | None] = field(default_factory=dict)
    """Query -> the last batch of its state."""
    choices: dict[str, Choice] = field(default_factory=dict)
    """Claim key -> what may be continued by it, once."""
    savepoints: dict[str, Mapping[str, Batch]] = field(default_factory=dict)
    """Id -> what each query's state is there."""
    pinned: set[str] = field(default_factory=set)
    blobs: dict[str, frozenset[str]] = field(default_factory=dict)
    """Id -> what each savepoint needs."""
    disposed: set[str] = field(default_factory=set)
    """By name, despite all protections."""
    written: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """Query id and batch number, or function and batch number -> the records that the sink got."""
    began: bool = False


class Oracle:
    """Sees all that drivers do."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.batches: dict[int, Batch] = {}
        self.wrong: list[Wrong] = []

    def say(self, kind: str, what: str) -> None:
        """Note a broken promise."""
        if kind not in NOT_YET:
            self.wrong.append(Wrong(kind=kind, what=what))

    def takes_over(self, life: Life, key: str, who: str, found: Mapping[str, Batch | None]) -> None:
        """Judge what a driver begins in that has just taken a job over."""
        choice = life.choices.get(key)
        if choice is not None and not choice.used and _are(found, choice.batches):
            choice.used = True
            if choice.new_sink:
                life.written.clear()
            else:
                self._forget(life, choice)
            life.head, life.began = dict(found), True
            return
        if not life.began:
            life.began = True
            if any(_are(found, saved) for saved in life.savepoints.values()):  # it was imported
                life.head = dict(found)
                return
        for query, batch in found.items():
            head = life.head.get(query)
            if batch is not head:
                kind = self._kind(life, head, batch)
                self.say(kind, f"{who} continues query {query} behind {batch}; the job was behind {head}")
                life.head[query] = batch

    def _kind(self, life: Life, head: Batch | None, found: Batch | None) -> str:
        if found is None:
            return "anew"
        if found.life is not life and not any(found in saved.values() for saved in life.savepoints.values()):
            return "foreign"
        behind = head
        while behind is not None:
            if behind is found:
                return "rewound"
            behind = behind.before
        return "abandoned"

    def _forget(self, life: Life, choice: Choice) -> None:
        """Let batch numbers be used again that a person chose to use again: the sink takes them twice."""
        if choice.what == "re-emit":
            life.written.clear()

    def plan(self, life: Life, query: str, before: Batch | None, low: int, high: int) -> Batch:
        """Number a batch that a driver plans."""
        batch = Batch(number=len(self.batches) + 1, life=life, query=query, before=before, low=low, high=high)
        self.batches[batch.number] = batch
        return batch

    def write(self, life: Life, batch: Batch, query_id: str, number: int, who: str) -> None:
        """Take what a driver writes of a batch: all of it, or a part, before it is committed."""
        rows = (batch.low, batch.high)
        memory = query_id if self.sink != "foreachBatch" else batch.query
        seen = life.written.setdefault((memory, number), rows)
        if seen != rows:
            self.say(
                "other-rows",
                f"{who} runs number {number} of query {batch.query} with records {rows[0]} to {rows[1]}; the "
                f"sink ({self.sink}) has seen it with {seen[0]} to {seen[1]}",
            )
            life.written[memory, number] = rows

    def commit(self, life: Life, batch: Batch, who: str) -> None:
        """Take a batch that a driver commits: it must follow the job's last one."""
        head = life.head.get(batch.query)
        if batch.before is not head:
            self.say("two-at-once", f"{who} commits {batch} behind {batch.before}; the job was behind {head}")
        batch.committed = True
        life.head[batch.query] = batch

    def on_line(self, life: Life, batches: Mapping[str, Batch]) -> bool:
        """Return whether a savepoint is of the line that the job's state is on."""
        return bool(batches) and all(
            _reaches(life.head.get(query), batch) for query, batch in batches.items()
        )


def _are(found: Mapping[str, Batch | None], wanted: Mapping[str, Batch | None]) -> bool:
    return all(batch is wanted.get(query) for query, batch in found.items())


def _reaches(head: Batch | None, batch: Batch) -> bool:
    while head is not None and head is not batch:
        head = head.before
    return head is batch
