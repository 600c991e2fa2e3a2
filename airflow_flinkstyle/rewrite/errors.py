"""Why a rewrite is not applied. Whatever the reason: nothing was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError, ErrorKind, FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_flinkstyle.rewrite.rows import PartitionMove, SourceRef

NOTHING_WRITTEN = "Nothing was written; the savepoint is unchanged."
_SHOWN = 8


def old_cluster_needed(ref: SourceRef, strategy: str) -> BadInputError:
    """Return the error for a strategy that needs the old cluster, which was not given."""
    return BadInputError(
        f"The old cluster was expected for source {ref} (way {strategy}), but no connection to it was given.",
        state_after=NOTHING_WRITTEN,
        remedy="Give its connection; if it is gone, give the source a new identity with a start position.",
    )


PLAN_FORMAT = ErrorKind(
    code="PLAN_FORMAT",
    means="A stored plan is malformed, or of a newer format.",
    problem="Rewrite plan: expected {expected}, found {found!r:.200}.",
    state_after=NOTHING_WRITTEN,
    remedy="Plan again (PlanOffsetRewriteOperator, flinkstyle offsets plan).",
)

PLAN_MISMATCH = ErrorKind(
    code="PLAN_MISMATCH",
    means="The plan was made for another savepoint, or another cluster than the one that answers.",
    problem="The plan was made for {what} {planned}, but found {found}.",
    state_after=NOTHING_WRITTEN,
    remedy="Plan again for this savepoint and this cluster (PlanOffsetRewriteOperator, flinkstyle "
    "offsets plan).",
)

PLANNED_BATCH = ErrorKind(
    code="PLANNED_BATCH",
    means="There is a planned batch, and its end has no exact place on the target.",
)

SOURCE_CHANGE = ErrorKind(
    code="SOURCE_CHANGE",
    means="A query cannot have the sources that were asked for.",
    problem="Change of the sources of {where}: expected {expected}, found {found}.",
    state_after=NOTHING_WRITTEN,
    remedy="Name each source as the savepoint does (its place from 0, or its name), an added one as the "
    "new script will have it.",
)

MOVES_REFUSED = ErrorKind(
    code="MOVES_REFUSED",
    means="Partitions have no safe offset, or one of a kind that was not allowed.",
)

PREVIEW_ONLY = ErrorKind(
    code="PREVIEW_ONLY",
    means="The plan is a preview, made while producers were at work.",
)

REWRITE_REFUSED = ErrorKind(
    code="REWRITE_REFUSED",
    means="Several preconditions of a rewrite do not hold.",
)


def moves_refused(problem: str, moves: Sequence[PartitionMove], remedy: str) -> FlinkstyleError:
    """List the partitions, each with its verdict."""
    rows = "; ".join(move.describe() for move in moves[:_SHOWN])
    more = f"; and {len(moves) - _SHOWN} more" if len(moves) > _SHOWN else ""
    return MOVES_REFUSED.with_text(f"{problem}: {rows}{more}.", state_after=NOTHING_WRITTEN, remedy=remedy)


def rewrite_refused(savepoint_id: str, failures: Sequence[FlinkstyleError]) -> FlinkstyleError:
    """Return the only failure as it is, or one error that lists them all."""
    if len(failures) == 1:
        return failures[0]
    problems = " ".join(f"({i}) {failure.problem}" for i, failure in enumerate(failures, 1))
    remedies = " ".join(f"({i}) {failure.remedy}" for i, failure in enumerate(failures, 1))
    return REWRITE_REFUSED.with_text(
        f"Savepoint {savepoint_id} cannot be rewritten for {len(failures)} reasons. {problems}",
        state_after=NOTHING_WRITTEN,
        remedy=remedies,
    )
