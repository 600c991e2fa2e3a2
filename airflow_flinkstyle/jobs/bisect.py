"""Find the first batch at which two versions of a job differ: compare, cut that batch, compare again.

Every pass starts from the same savepoint, where both versions have the same state, and runs the batches
before the cut as the last pass did: a version that started after them, from the other one's state, would show
another difference, or none.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.jobs.comparison import compare_versions
from airflow_flinkstyle.wording import counted, row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.comparison import CompareAsked, Version
    from airflow_flinkstyle.protocol.comparison_records import ComparedQuery, Comparison

PIECES: Final = 16
"""Into so many a batch is cut for the next pass; each pass costs 2 or 3 drivers and all batches before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectAsked:
    """How much to compare, and how narrow."""

    compare: CompareAsked
    """The first pass; ``timeout_s`` counts for each."""
    narrow: int = 1000
    """A batch of at most so many records is not cut further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisected:
    """The result of the narrowest pass with a difference in rows; of the first pass if none has one."""

    found: Comparison
    passes: int
    query: str | None
    """The query whose batch it is; None if no row differs."""

    @property
    def first(self) -> ComparedQuery | None:
        """Return the comparison of that query."""
        return self.found.queries[self.query] if self.query is not None else None

    def as_markdown(self) -> str:
        """Render the batch, its offsets, and some rows."""
        first, passes = self.first, counted(self.passes, "pass", "passes")
        if first is None or first.first_batch is None:
            if self.found.verdict == "not comparable":
                return f"Nothing is known of the batches, in {passes}: {self.found.summary()}"
            return f"No batch differs in its rows, in {passes}: {self.found.summary()}"
        heads, line = ("rows of the first batch that differs", "old", "new"), "|---|---|---|"
        rows = [row((one.kind, one.old or "-", one.new or "-")) for one in first.samples]
        return "\n".join(
            [
                f"Query {self.query} differs first in batch {first.first_batch} behind savepoint "
                f"{self.found.savepoint_id}, with {first.first_records:,} records: "
                f"{'; '.join(first.first_places())} ({passes}).",
                *(["", row(heads), line, *rows] if rows else []),
            ]
        )


def bisect_versions(
    client: JobClient,
    old: Version,
    new: Version,
    *,
    key: str,
    savepoint_id: str,
    asked: BisectAsked,
    report: Callable[[str], None] = lambda _text: None,
) -> Bisected:
    """Compare in passes, each with smaller batches where the one before found the first difference.

    Args:
        client: The job; it is not touched.
        old: What it runs, and where.
        new: What differs from that.
        key: The caller, without the try number.
        savepoint_id: The savepoint that each pass starts from.
        asked: How much, and how narrow.
        report: Called with the result of each pass, as text.

    Raises:
        FlinkstyleError: As ``compare_versions`` does.
    """
    batch_before = {one.name: one.batch_id for one in client.view.repository.read(savepoint_id).queries}
    sizes: Sequence[int] = [asked.compare.records] * asked.compare.batches
    best: Bisected | None = None
    while True:
        passes = 1 if best is None else best.passes + 1
        how = replace(asked.compare.how, sizes=tuple(sizes), by_batch=True)
        compare = replace(asked.compare, how=how)
        found = compare_versions(
            client, old, new, key=f"{key}/{passes}", savepoint_id=savepoint_id, asked=compare
        )
        query = _first(found, batch_before)
        if best is not None and query is None:  # records came in between, or other batches hide it
            return replace(best, passes=passes)
        best = Bisected(found=found, passes=passes, query=query)
        report(best.as_markdown().partition("\n")[0])
        if best.first is None or query is None or best.first.first_batch is None:
            return best
        before = best.first.first_batch - batch_before[query] - 1
        cut = _cut(best.first)
        if best.first.first_records <= asked.narrow or len(cut) == 1:
            return best
        sizes = [*sizes[:before], *cut]


def _first(found: Comparison, batch_before: dict[str, Any]) -> str | None:
    """Return the query with the earliest batch that differs."""
    differ = {
        name: one.first_batch - batch_before[name]
        for name, one in found.queries.items()
        if one.verdict == "differs" and one.first_batch is not None
    }
    return min(sorted(differ), key=differ.__getitem__, default=None)


def _cut(first: ComparedQuery) -> list[int]:
    """Return the sizes of the batches into which the first one that differs is cut. Pure."""
    widths = {
        partition: at - first.first_from[source].get(partition, at)
        for source, ends in first.first_to.items()
        for partition, at in ends.items()
    }
    widest = max(widths.values(), default=1)
    share = max(1, math.ceil(widest / PIECES))
    return [share * max(1, len(widths))] * max(1, math.ceil(widest / share))


def as_values(found: Bisected) -> dict[str, Any]:
    """Return plain values."""
    first = found.first
    values = {
        "verdict": found.found.verdict,
        "summary": found.found.summary(),
        "savepoint_id": found.found.savepoint_id,
        "passes": found.passes,
        "query": found.query,
        "batch": first.first_batch if first is not None else None,
        "records": first.first_records if first is not None else None,
        "offsets": first.first_places() if first is not None else [],
        "rows": [asdict(sample) for sample in first.samples] if first is not None else [],
    }
    return dict(json.loads(json.dumps(values)))
