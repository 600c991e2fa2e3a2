"""The settings of the drivers of a comparison, and the outcome that the last of them writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.storage.keys import Name
from airflow_flinkstyle.typed_json import decode, encode, stored
from airflow_flinkstyle.types import Generation, Incarnation, TopicPartition
from airflow_flinkstyle.wording import counted, row

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPARE: Final = "spark.flinkstyle.compare"
"""Setting that makes a drill one driver of a comparison; its value is ``Compare.as_setting``."""
ORDER: Final = ":order"
"""Suffix of a column's name in ``ignore``: only the order of its array may differ."""

_SHOWN: Final = 4
"""How many partitions of a batch are named."""

Part = Literal["old", "new", "again"]
Verdict = Literal["same", "differs", "not comparable"]
Kind = Literal["only in old", "only in new", "changed"]
LEAVES_OPEN: Final = (
    "Not shown by this: the sinks, functions of foreachBatch and foreach, and later batches. What UDFs call "
    "outside, each run has called once more."
)
"""Ends every comparison's text."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """One driver's part. ``old`` chooses the batches; ``new`` and ``again`` run the same ones, and compare.

    ``again`` is the old version once more, in a driver of its own: where its results differ, the script is
    not deterministic.
    """

    part: Part
    old: Generation | None = None
    """The driver that chose the batches; None for this one."""
    new: Generation | None = None
    """With ``again``: the driver that has run the new version."""
    keys: Mapping[Name, tuple[str, ...]] = field(default_factory=dict)
    """Query -> columns that identify a row; a query without any is compared by whole rows."""
    ignore: tuple[str, ...] = ()
    """Columns that may differ; ``name:order`` for an array in any order."""
    tolerance: Mapping[str, float] = field(default_factory=dict)
    """Column -> by how much numbers may differ."""
    state: bool = True
    """Whether the state is compared too."""
    allow_writes: bool = False
    """Whether the script may write to places other than its queries' sinks, as in a normal run."""
    samples: int = 10
    """How many rows of each kind are shown."""
    sizes: tuple[int, ...] = ()
    """How many records each batch reads at most; empty: number and size of batches as in the claim."""
    by_batch: bool = False
    """Whether the rows of each batch count, instead of the result that all batches leave."""

    def as_setting(self) -> str:
        """Return it as the value of ``COMPARE``."""
        return json.dumps(encode(self), sort_keys=True)

    @staticmethod
    def of_setting(text: str) -> Compare | None:
        """Parse a session's setting; None if it is empty."""
        return decode(Compare, json.loads(text)) if text else None


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRow:
    """One row that differs, or a pair of rows with one key, as JSON."""

    kind: Kind
    old: str | None = None
    new: str | None = None


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedState:
    """One state of one operator, key by key, after the last batch."""

    operator: int
    which: str = ""
    """The side of a join, or the state variable; empty for an operator with one state."""
    added: int = 0
    """Keys that only the new version has."""
    removed: int = 0
    changed: int = 0
    not_deterministic: bool = False
    """Two runs of the old version differ in its floating-point numbers too: these were left out."""
    samples: tuple[str, ...] = ()
    """Keys with their rows before and after, as JSON."""

    @property
    def differs(self) -> bool:
        """Whether any key differs."""
        return self.added + self.removed + self.changed > 0 and not self.not_deterministic

    def __str__(self) -> str:
        """Return it as a part of a sentence."""
        name = f"operator {self.operator}{f' ({self.which})' if self.which else ''}"
        if self.not_deterministic:
            return f"{name} not deterministic in its floating-point numbers: left out"
        if not self.differs:
            return f"{name} same"
        return f"{name}: {self.added:,} keys added, {self.removed:,} removed, {self.changed:,} changed"


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedQuery:
    """One query: the rows that both versions would have given to its sink, and the state they left."""

    batches: int = 0
    input_rows: int = 0
    """Rows that the old version read."""
    replayed: bool = False
    """Whether these rows were the last before the savepoint, since there were none after it."""
    output_mode: str = ""
    old_rows: int = 0
    """Rows of the result: all that were appended; of an update the last ones of each key; of a complete
    output those of the last batch."""
    new_rows: int = 0
    equal: int = 0
    only_old: int = 0
    only_new: int = 0
    changed: int = 0
    """Pairs of rows with the same key and other values; 0 where no key was given."""
    columns: tuple[str, ...] = ()
    """Changes of the columns by the new version, a part of a sentence each."""
    changed_columns: Mapping[str, int] = field(default_factory=dict)
    """Column -> in how many of the changed pairs it differs."""
    not_deterministic: tuple[str, ...] = ()
    """Columns in which two runs of the old version differ: left out."""
    first_batch: int | None = None
    """The first batch of which a row differs."""
    first_from: Mapping[str, Offsets] = field(default_factory=dict)
    """By source, where that batch begins."""
    first_to: Mapping[str, Offsets] = field(default_factory=dict)
    """By source, where it ends; exclusive."""
    samples: tuple[ShownRow, ...] = ()
    states: tuple[ComparedState, ...] = ()
    not_comparable: str = ""
    """Why it cannot be compared, one sentence; empty if it was."""
    untested: tuple[str, ...] = ()
    """What was not compared, one sentence each."""

    @property
    def first_records(self) -> int:
        """Return how many offsets the first batch with a difference has."""
        return sum(end - begin for begin, end in self._first_ranges().values())

    def first_places(self) -> list[str]:
        """Return these offsets by partition, without empty ranges, for people."""
        return [
            f"{topic}-{number} {begin:,} to {end:,}"
            for (topic, number), (begin, end) in sorted(self._first_ranges().items())
            if end > begin
        ]

    def _first_ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        return {
            partition: (self.first_from.get(source, Offsets()).get(partition, end), end)
            for source, ends in self.first_to.items()
            for partition, end in ends.items()
        }

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on this query."""
        if self.not_comparable:
            return "not comparable"
        rows = self.only_old + self.only_new + self.changed
        differs = bool(rows or self.columns or any(state.differs for state in self.states))
        return "differs" if differs else "same"

    def notes(self) -> tuple[str, ...]:
        """Return the differences that the counts do not show, a part of a sentence each."""
        changed = sorted(self.changed_columns.items())
        notes = [*self.columns, *map(str, self.states)]
        notes += [f"{column} differs in {count:,}" for column, count in changed]
        if self.first_batch is not None and self.verdict == "differs":
            places = self.first_places()
            more = f", and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
            where = f" ({', '.join(places[:_SHOWN])}{more})" if places else ""
            notes.append(f"first in batch {self.first_batch}{where}")
        if self.not_deterministic:
            notes.append(f"not deterministic, left out: {', '.join(self.not_deterministic)}")
        if self.replayed:
            notes.append("on records that the state has already")
        return tuple(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Record):
    """``reports/<generation>/comparison.json``: written by the driver that compared, at the end."""

    what: ClassVar[str] = "comparison"

    incarnation: Incarnation
    savepoint_id: Name
    """The savepoint from which both versions ran."""
    old: Generation
    new: Generation
    again: Generation | None = None
    """The driver that ran the old version once more; None if none has."""
    queries: Mapping[Name, ComparedQuery]
    seconds: float
    """How long the comparison took, without the batches."""
    ended_at_ms: int

    @property
    def verdict(self) -> Verdict:
        """Return the verdict on the whole job."""
        verdicts = {query.verdict for query in self.queries.values()}
        if "not comparable" in verdicts or not verdicts:
            return "not comparable"
        return "differs" if "differs" in verdicts else "same"

    @property
    def asks_for_another_run(self) -> bool:
        """Whether a second run of the old version may explain what differs."""
        return self.again is None and any(one.verdict == "differs" for one in self.queries.values())

    def summary(self) -> str:
        """Return it in one line."""
        ran = self.queries.values()
        rows = f"{sum(one.input_rows for one in ran):,} records, {sum(one.old_rows for one in ran):,} rows"
        why = "; ".join(
            f"{name}: {reason}" for name, one in sorted(self.queries.items()) if (reason := _why(one))
        )
        return f"{self.verdict} ({rows})" + (f": {why}" if why else "")

    def as_markdown(self) -> str:
        """Render a row for each query below the line that sums it up, then what differs."""
        heads = (
            "query",
            "verdict",
            "records",
            "rows, old",
            "new",
            "equal",
            "only old",
            "only new",
            "changed",
        )
        cells = [
            (
                *(name, one.verdict, f"{one.input_rows:,}", f"{one.old_rows:,}", f"{one.new_rows:,}"),
                *(f"{one.equal:,}", f"{one.only_old:,}", f"{one.only_new:,}", f"{one.changed:,}"),
            )
            for name, one in sorted(self.queries.items())
        ]
        shown = [self.summary(), "", row(heads), "|---" * len(heads) + "|", *map(row, cells)]
        for name, one in sorted(self.queries.items()):
            shown += _details(name, one)
        return "\n".join([*shown, "", LEAVES_OPEN])


def _why(one: ComparedQuery) -> str:
    """Return what differs of a query and what was not compared, or why it cannot be; empty for none."""
    if one.not_comparable:
        return one.not_comparable.removesuffix(".")
    rows = (("changed", one.changed), ("only in the old version", one.only_old))
    parts = [f"{count:,} {what}" for what, count in (*rows, ("only in the new one", one.only_new)) if count]
    parts += [
        *one.columns,
        *(f"state of {state}" for state in one.states if state.differs or state.not_deterministic),
    ]
    untested = [f"not compared: {' '.join(one.untested).removesuffix('.')}"] if one.untested else []
    return ", ".join([*parts, *untested])


def _details(name: str, one: ComparedQuery) -> Iterator[str]:
    notes = one.notes()
    if notes or one.untested:
        untested = f" Not compared: {' '.join(one.untested)}" if one.untested else ""
        yield from ("", f"{name} ({counted(one.batches, 'batch', 'batches')}): {'; '.join(notes)}.{untested}")
    samples = [
        *((sample.kind, sample.old or "-", sample.new or "-") for sample in one.samples),
        *(("state", key, "-") for state in one.states if state.differs for key in state.samples),
    ]
    if samples:
        heads = (f"sample of {name}", "old", "new")
        yield from ("", row(heads), "|---" * len(heads) + "|", *map(row, samples))
