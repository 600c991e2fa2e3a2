"""How a caller requests a rehearsal, and the outcome that the agent writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.storage.keys import Name
from airflow_flinkstyle.typed_json import stored
from airflow_flinkstyle.types import Incarnation
from airflow_flinkstyle.wording import counted, row

StateSchema = Literal["unchanged", "changed", "none"]
"""Whether Spark wrote another schema of the state than the savepoint has; ``none``: there is no state."""

Verdict = Literal["compatible", "needs repartition", "needs a new source identity", "incompatible"]


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One thing in which a new version may differ from what the savepoint holds."""

    query: str = ""
    """The query that it concerns; empty for the whole job."""
    what: str
    before: str
    now: str
    verdict: Verdict
    reason: str = ""
    """Empty if nothing has changed."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearse:
    """How a driver that waits tries its queries on a scratch copy of the hot savepoint."""

    batches: int = 2
    """How many batches of each query; at least 1."""
    records: int = 10_000
    """How many records a batch may read from Kafka at most, over all partitions that the query reads."""
    timeout_s: float = 300.0
    """For the whole rehearsal."""
    elsewhere: bool = False
    """Its sources reach another Kafka cluster than the savepoint's: the copy reads the newest records there,
    whatever the savepoint's positions mean."""
    only: bool = False
    """A drill: no takeover follows. The driver restores the copies of all queries, never waits for a takeover
    order, and ends as ``closed``; so it keeps no other driver from starting."""
    allow_untested: bool = False
    """Whether the caller lets a version take over of which a query has read no rows in its rehearsal."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedQuery:
    """The outcome for one query."""

    batches: int = 0
    """Batches that were committed to the scratch copy."""
    restore_s: float = 0.0
    """How long its restore took."""
    input_rows: int = 0
    """Rows that its sources handed to these batches, as Spark counts them."""
    seconds: tuple[float, ...] = ()
    """How long each batch took, by Spark's ``triggerExecution``."""
    state_schema: StateSchema = "none"
    state_changes: tuple[str, ...] = ()
    """Changes of the state's columns: added, dropped, renamed, widened; a part of a sentence each."""
    watermark_ms: int | None = None
    """Of the last batch, epoch milliseconds; None for a query without a watermark."""
    untested: tuple[str, ...] = ()
    """What did not run, one sentence each."""
    replayed: bool = False
    """Whether its rows are the last ones before the savepoint, because there were none after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal(Record):
    """``reports/<generation>/rehearsal.json``: the agent's, written once by each driver that rehearsed."""

    what: ClassVar[str] = "rehearsal"

    incarnation: Incarnation
    savepoint_id: Name
    """The savepoint that was copied."""
    not_tested: tuple[Name, ...] = ()
    """Queries of the savepoint that read no rows in it: it proves nothing about them."""
    queries: Mapping[Name, RehearsedQuery] = field(default_factory=dict)
    failure: tuple[str, str] | None = None
    """Error code and text; None if it passed."""
    compared: tuple[Compared, ...] = ()
    """What the new version changes of the job, and of the queries that it starts."""
    seconds: float
    """How long it took, with the restore of the copy."""
    ended_at_ms: int

    def summary(self) -> str:
        """Return it in one line."""
        if self.failure is not None:
            return f"rehearsal failed with {self.failure[0]}: {self.failure[1]}"
        ran = [query for query in self.queries.values() if query.batches]
        text = self._result(ran) if ran else "nothing rehearsed"
        return f"NOT TESTED, no rows read: {', '.join(self.not_tested)}; {text}" if self.not_tested else text

    @staticmethod
    def _result(ran: Sequence[RehearsedQuery]) -> str:
        taken = [seconds for query in ran for seconds in query.seconds]
        schemas = {query.state_schema for query in ran} - {"none"}
        schema = "CHANGED" if "changed" in schemas else "unchanged" if schemas else "none"
        return (
            f"rehearsed: {counted(sum(query.batches for query in ran), 'batch', 'batches')}, "
            f"{sum(query.input_rows for query in ran):,} rows, {sum(taken) / max(1, len(taken)):.1f} s each, "
            f"state schema {schema}"
            + (", on records that the state has already" if any(query.replayed for query in ran) else "")
        )

    def as_markdown(self) -> str:
        """Render one row per query below the line that sums it up, then what was compared."""
        heads: tuple[str, ...] = ("query", "batches", "rows", "seconds each", "state schema", "not tested")
        rows = [
            row(
                (
                    *(name, one.batches, f"{one.input_rows:,}"),
                    ", ".join(f"{seconds:.1f}" for seconds in one.seconds) or "-",
                    *(one.state_schema, " ".join(one.untested) or "-"),
                )
            )
            for name, one in sorted(self.queries.items())
        ]
        shown = [self.summary(), "", row(heads), "|---" * len(heads) + "|", *rows]
        if self.compared:
            heads = ("compared", "in the savepoint", "in the new version", "verdict", "why")
            cells = [
                (self._named(one), one.before, one.now, one.verdict, one.reason) for one in self.compared
            ]
            shown += ["", row(heads), "|---" * len(heads) + "|", *map(row, cells)]
        return "\n".join(shown)

    def _named(self, compared: Compared) -> str:
        """Return the name of what was compared, with its query if there are several."""
        several = len({one.query for one in self.compared if one.query}) > 1
        return f"{compared.what} of {compared.query}" if several and compared.query else compared.what
