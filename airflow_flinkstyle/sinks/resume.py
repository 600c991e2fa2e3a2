"""What a query starts from, noted for its sinks; and what its sinks have written, noted for the agent.

Both are kept per query id in the driver's process: the agent runs there, and so do the sinks. Without the
agent nothing is noted for the sinks, and every lineage is taken as it is.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.sinks.errors import SINK_LINEAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.types import Rewind


def is_lineage_of(recorded: str, own: str) -> bool:
    """Return whether a recorded lineage is that of a sink, or one that a rewind has begun for it.

    Args:
        recorded: As a savepoint has it.
        own: As the script names it, or the query's id.
    """
    name, _, generation = recorded.rpartition(".")
    return recorded == own or (name == own and generation.isdigit())


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """What the savepoint that a query starts from records of a sink, and the rewind that was chosen."""

    mode: Rewind
    """``continue`` continues with the lineage; ``fork`` and ``re-emit`` begin another one."""
    after_batch: int
    """The savepoint's last committed batch, in the numbering of the checkpoint restored from it; -1: none."""
    lineage: str | None
    """The lineage the savepoint names; None if it names none."""
    cluster_id: str | None
    """The cluster whose topics the lineage was written to; None if it is not known, empty if there was none:
    the query had no such sink."""
    suffix: str
    """Tells a new lineage from its predecessors: the generation, which relaunches keep."""
    under_way: bool = False
    """The batch after it was planned already: a part of it may be on that cluster."""

    def lineage_of(self, own: str) -> str:
        """Return the lineage to write under.

        Args:
            own: The one that the job names, or the query's id.
        """
        if self.mode == "continue":
            return self.lineage or own
        return f"{own}.{self.suffix}"

    def is_for(self, own: str) -> bool:
        """Return whether this is about the sink whose lineage is named so in the script."""
        return self.mode != "continue" or self.lineage is None or is_lineage_of(self.lineage, own)

    def begins_behind(self, *, cluster_id: str, batch_id: int, completed: int | None) -> int | None:
        """Return the batch behind which the lineage begins on a cluster; None to take it as it is there.

        It begins only where nothing can be left out or doubled by that: at the first batch after the
        savepoint, with a new lineage, or on another cluster than the savepoint's, on which the lineage is
        unknown or ended earlier, before it moved away.

        Args:
            cluster_id: The cluster that the sink writes to now.
            batch_id: The first batch of this run; a later one than the savepoint's next after a relaunch.
            completed: The newest batch that the lineage has completed there; None if it has none.

        Raises:
            FlinkstyleError: ``SINK_LINEAGE`` if the sink has moved while a batch was under way.
        """
        if batch_id != self.after_batch + 1:
            return None
        if self.mode == "continue":
            moved = self.cluster_id not in (None, cluster_id)
            if moved and self.cluster_id and self.under_way:
                raise self._half_moved(self.cluster_id, cluster_id)
            begins = moved and (completed is None or completed < self.after_batch)
        else:
            begins = completed is None
        return self.after_batch if begins else None

    def _half_moved(self, before: str, now: str) -> FlinkstyleError:
        return SINK_LINEAGE.with_text(
            f"Lineage {self.lineage} cannot move from Kafka cluster {before} to {now} now: batch "
            f"{self.after_batch + 1} was planned already, and a part of it may be in the output.",
            remedy=f"Start the job with its sink on cluster {before}, from its checkpoint or a savepoint "
            "that was taken since; stop it with a savepoint once a batch has completed, and move then. Or "
            "choose rewind='fork' or 're-emit', which writes it again.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkState:
    """What one sink of a query has written, as of its newest complete batch."""

    lineage: str
    shards: int
    """Transactions that share a batch."""
    control_topic: str
    """Holds the lineage's markers and completions."""
    cluster_id: str
    """Given by the cluster when it was made."""
    completed_batch: int
    """-1 if the lineage has written nothing yet."""
    markers: Mapping[int, int]
    """Newest batch per shard; shards that have written nothing are left out."""
    commits_group: str | None = None
    """The consumer group whose offsets are committed with the sink's completions; None if it commits none."""

    @property
    def place(self) -> tuple[str, int, str, str]:
        """What stays as it is from batch to batch."""
        return self.lineage, self.shards, self.control_topic, self.cluster_id


_lock = threading.Lock()
_resumes: dict[str, tuple[Resume, ...]] = {}
_states: dict[str, dict[str, SinkState]] = {}
_failures: dict[str, FlinkstyleError] = {}
_listeners: list[Callable[[str], None]] = []


def expect(query_id: str, *resumes: Resume) -> None:
    """Note for the sinks of a query, before its first batch, what it starts from; one for each known sink."""
    with _lock:
        _resumes[query_id] = resumes


def expected(query_id: str, own: str) -> Resume | None:
    """Return what a sink starts from; None if it was not noted.

    Args:
        query_id: The query's id.
        own: The lineage that the job names for the sink, or the query's id.
    """
    with _lock:
        found = [resume for resume in _resumes.get(query_id, ()) if resume.is_for(own)]
    return next((resume for resume in found if resume.lineage == own), found[0] if found else None)


def note_state(query_id: str, state: SinkState) -> None:
    """Note what a sink of a query has written; replaces what was noted of the lineage.

    Listeners are called if its place is new, and an error of theirs ends the batch: call it before anything
    is written there.
    """
    with _lock:
        known = _states.setdefault(query_id, {})
        before = known.get(state.lineage)
        known[state.lineage] = state
        _failures.pop(query_id, None)  # the query has continued since
        listeners = list(_listeners) if before is None or before.place != state.place else []
    for listener in listeners:
        listener(query_id)


def listen(listener: Callable[[str], None]) -> None:
    """Have a function called with a query's id when one of its sinks has found its place."""
    with _lock:
        _listeners.append(listener)


def note_failure(query_id: str, error: FlinkstyleError) -> None:
    """Note what a sink refused a batch with: Spark only passes on its text."""
    with _lock:
        _failures[query_id] = error


def failure(query_id: str) -> FlinkstyleError | None:
    """Return what a sink of the query refused a batch with last; None if none did."""
    with _lock:
        return _failures.get(query_id)


def states(query_id: str) -> tuple[SinkState, ...]:
    """Return what the sinks of a query have written, by lineage; empty before its first batch here."""
    with _lock:
        return tuple(state for _, state in sorted(_states.get(query_id, {}).items()))
