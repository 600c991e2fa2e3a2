"""The fence in a migration's window, and the watch for producers that wake after the check.

Two phases of the journal, ``PHASE`` within ``hold`` and ``ENDS_PHASE`` behind ``caught-up``.

The cutover calls, in this order: ``raise_fence`` between two proofs that producers are held, ``note_ends``
once the mirror has caught up, ``require_quiet`` right before the new driver's takeover order (until then
all can be undone), ``late_writes`` once it has taken over and again behind its first commit. ``drop_fence``
belongs before every release to the old cluster. After a success the fence stays: a producer that was
left behind gets an error instead of writing what no job reads.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.errors import (
    LATE_WRITES,
    AttemptSupersededError,
    FenceStandsError,
    FenceStandsYetError,
)
from airflow_flinkstyle.kafka.audit.open_transactions import explain
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import FENCE_DOWN
from airflow_flinkstyle.kafka.fence.fences import FenceRecord
from airflow_flinkstyle.kafka.fence.fencing import Moving, since
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.typed_json import decode, encode

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.jobs.journal import CutoverJournal
    from airflow_flinkstyle.kafka.fence.fences import Fence
    from airflow_flinkstyle.kafka.settings import KafkaCluster

log = logging.getLogger(__name__)

PHASE, ENDS_PHASE = "fence", "ends"
_STILL_OLD = "Nothing has moved: the job keeps running on the old cluster."


class FenceWatch(Protocol):
    """Reads the ends of the old cluster's logs, and has the fence around it."""

    @property
    def fence(self) -> Fence:
        """How producers are kept away."""

    def ends(self, topics: Collection[str]) -> Offsets:
        """Return the ends of all partitions."""

    def late_writes(self, ends: Offsets) -> str | None:
        """Return None if the logs still end there, else a sentence with the offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWatch:
    """The same on a real cluster."""

    cluster: KafkaCluster
    fence: Fence

    def ends(self, topics: Collection[str]) -> Offsets:
        """Read the cluster."""
        return describe(self.cluster, topics).ends

    def late_writes(self, ends: Offsets) -> str | None:
        """Read the ends again, and compare."""
        found = since(self.cluster, ends)
        return explain(self.cluster, found) if isinstance(found, Moving) else None


def raise_fence(journal: CutoverJournal, watch: FenceWatch, topics: Collection[str]) -> Mapping[str, Any]:
    """Put the fence up, after its record was journalled; call it again in every attempt that has not stopped.

    Raises:
        AttemptSupersededError: If a later attempt has begun. If that one has gone back already, the
            fence that this one put up after that is taken down first.
    """
    known = journal.read(PHASE)
    intent = known.intent if known else watch.fence.plan(topics).as_dict()
    phase = journal.open(PHASE, intent)
    record = FenceRecord.from_dict(phase.record.intent)
    try:
        watch.fence.put(record)
    finally:  # also after a call that failed: the cluster may have done it
        _lift_after_rollback(journal, watch, record)
    log.info("%s", record.describe())
    return phase.record.result or journal.close(phase, {"kind": record.kind, "fence": record.describe()})


def _lift_after_rollback(journal: CutoverJournal, watch: FenceWatch, record: FenceRecord) -> None:
    try:
        journal.check()
    except AttemptSupersededError:
        if journal.read("rollback") is not None:
            watch.fence.lift(record)
        raise


def drop_fence(journal: CutoverJournal, watch: FenceWatch) -> None:
    """Take down the fence that any attempt of this migration has put up; else do nothing.

    Raises:
        FenceStandsError: If the cluster does not let it; take it down again. ``FenceStandsYetError`` if that
            may pass.
    """
    known = journal.read(PHASE)
    if known is None:
        return
    record = FenceRecord.from_dict(known.intent)
    try:
        watch.fence.lift(record)
    except FlinkstyleError as error:
        kind = FenceStandsYetError if error.retryable else FenceStandsError
        raise kind(
            f"The fence was expected to come down again, found: {error.problem}",
            state_after=f"The job runs on the old cluster, its producers are held. {record.describe()}",
            remedy=f"{error.remedy} Then clear this task, or let it be retried: it continues the rollback.",
        ) from error


def note_ends(journal: CutoverJournal, watch: FenceWatch, topics: Collection[str]) -> Mapping[str, Any]:
    """Record where the old logs end while producers are held; what the first attempt recorded counts."""
    phase = journal.open(ENDS_PHASE, {})
    return phase.record.result or journal.close(phase, {"ends": encode(watch.ends(topics))})


def noted_ends(journal: CutoverJournal) -> Offsets | None:
    """Return where the old logs ended when that was noted; None if it was not."""
    noted = journal.result(ENDS_PHASE)
    return decode(Offsets, noted["ends"]) if noted else None


def watched(journal: CutoverJournal) -> set[str]:
    """Return the topics whose ends were noted."""
    return set((journal.result(ENDS_PHASE) or {}).get("ends", ()))


def require_quiet(journal: CutoverJournal, watch: FenceWatch) -> None:
    """Require that the fence is up and that nothing was written since the ends were noted.

    Raises:
        FlinkstyleError: ``FENCE_DOWN`` if entries were removed of the fence.
        JobError: ``LATE_WRITES`` if records or open transactions came after the noted ends.
    """
    known = journal.read(PHASE)
    if known is not None and (gone := watch.fence.missing(FenceRecord.from_dict(known.intent))):
        raise FENCE_DOWN.with_text(
            f"The fence was expected to be up, but these ACLs are gone: {'; '.join(map(str, gone))}.",
            state_after=_STILL_OLD,
            remedy="Find out who removed them, then migrate again.",
        )
    found = late_writes(journal, watch)
    if found is not None:
        raise LATE_WRITES.with_text(
            f"No producer was expected to write to the old cluster after producers were held. {found}",
            state_after=_STILL_OLD,
            remedy="Find the producer of these records and make it obey the switch, or fence by ACL; then "
            "migrate again.",
        )


def late_writes(journal: CutoverJournal, watch: FenceWatch) -> str | None:
    """Return what was written to the old cluster since the ends were noted, with its offsets, or None."""
    noted = noted_ends(journal)
    return watch.late_writes(noted) if noted is not None else None
