"""Why a rewrite is not applied. Whatever the reason: nothing was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from airflow_flinkstyle.rewrite.rows import PartitionMove, SourceRef

NOTHING_WRITTEN = "Nothing was written; the savepoint is unchanged."
_SHOWN = 8


class RewriteError(FlinkstyleError):
    """Root of the errors about rewrites."""

    code = "REWRITE"


class PlanFormatError(RewriteError):
    """A stored plan is malformed, or of a newer format."""

    code = "PLAN_FORMAT"

    @classmethod
    def of(cls, expected: str, found: object) -> Self:
        """Name what was expected and what was found."""
        return cls(
            f"Rewrite plan: expected {expected}, found {found!r:.200}.",
            state_after=NOTHING_WRITTEN,
            remedy="Plan again (PlanOffsetRewriteOperator, flinkstyle offsets plan).",
        )


class PlanMismatchError(RewriteError):
    """The plan was made for another savepoint, or another cluster than the one that answers."""

    code = "PLAN_MISMATCH"

    @classmethod
    def between(cls, what: str, *, planned: str | None, found: str | None) -> Self:
        """Name what differs, and both values."""
        return cls(
            f"The plan was made for {what} {planned}, but found {found}.",
            state_after=NOTHING_WRITTEN,
            remedy="Plan again for this savepoint and this cluster (PlanOffsetRewriteOperator, flinkstyle "
            "offsets plan).",
        )


class PlannedBatchInexactError(RewriteError):
    """There is a planned batch, and its end has no exact place on the target."""

    code = "PLANNED_BATCH"


class SourceChangeError(RewriteError):
    """A query cannot have the sources that were asked for."""

    code = "SOURCE_CHANGE"

    @classmethod
    def of(cls, where: str, expected: str, found: str) -> Self:
        """Name the query, what was expected and what was found."""
        return cls(
            f"Change of the sources of {where}: expected {expected}, found {found}.",
            state_after=NOTHING_WRITTEN,
            remedy="Name each source as the savepoint does (its place from 0, or its name), an added one as "
            "the new script will have it.",
        )


class MovesRefusedError(RewriteError):
    """Partitions have no safe offset, or one of a kind that was not allowed."""

    code = "MOVES_REFUSED"

    @classmethod
    def of(cls, problem: str, moves: Sequence[PartitionMove], remedy: str) -> Self:
        """List the partitions, each with its verdict."""
        rows = "; ".join(move.describe() for move in moves[:_SHOWN])
        more = f"; and {len(moves) - _SHOWN} more" if len(moves) > _SHOWN else ""
        return cls(f"{problem}: {rows}{more}.", state_after=NOTHING_WRITTEN, remedy=remedy)


class PreviewOnlyError(RewriteError):
    """The plan is a preview, made while producers were at work."""

    code = "PREVIEW_ONLY"


class RewriteRefusedError(RewriteError):
    """Several preconditions of a rewrite do not hold."""

    code = "REWRITE_REFUSED"

    @classmethod
    def of(cls, savepoint_id: str, failures: Sequence[FlinkstyleError]) -> FlinkstyleError:
        """Return the only failure as it is, or one error that tells them all."""
        if len(failures) == 1:
            return failures[0]
        problems = " ".join(f"({i}) {failure.problem}" for i, failure in enumerate(failures, 1))
        remedies = " ".join(f"({i}) {failure.remedy}" for i, failure in enumerate(failures, 1))
        return cls(
            f"Savepoint {savepoint_id} cannot be rewritten for {len(failures)} reasons. {problems}",
            state_after=NOTHING_WRITTEN,
            remedy=remedies,
        )


def old_cluster_needed(ref: SourceRef, strategy: str) -> BadInputError:
    """Return the error for a way that has to look at the old cluster, and cannot."""
    return BadInputError(
        f"The old cluster was expected for source {ref} (way {strategy}), but no connection to it was given.",
        state_after=NOTHING_WRITTEN,
        remedy="Give its connection; if it is gone, give the source a new identity with a start position.",
    )
