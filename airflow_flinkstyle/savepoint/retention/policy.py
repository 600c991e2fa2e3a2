"""Which savepoints stay, and why each of them does or does not. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.wording import row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_flinkstyle.savepoint.blobs.references import Reference
    from airflow_flinkstyle.savepoint.files.verify import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How much history is kept; protected savepoints stay beyond it."""

    max_count: int | None = None
    """Complete savepoints to keep, not counting those pinned or in use; None for any number."""
    max_age_s: float | None = None
    """None for any age."""

    def __post_init__(self) -> None:
        """Refuse limits that would keep nothing."""
        for name, value in (("max_count", self.max_count), ("max_age_s", self.max_age_s)):
            if value is not None and not value > 0:
                raise BadInputError(
                    f"Retention: expected {name} to be more than 0, or none, found {value}.",
                    state_after="Nothing was disposed of.",
                    remedy="Correct the limit; to dispose of one savepoint, name it.",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A savepoint, with everything that retention asks about it."""

    savepoint_id: str
    taken_at_ms: int
    """By its taker's clock: for its age, never to order savepoints."""
    missing_blobs: int
    """Blobs that are not there, or not of their size; 0 for a complete one."""
    verified: Level | None
    """The newest check it passed; None if it failed one since."""
    pinned: str | None
    """By whom and why; None if it is not pinned."""
    in_use: str | None
    """Who needs it: a run that started from it, an open migration; None if it is not in use."""
    owned: Reference | None = None
    """The reference of a restore in claim mode, which needs it until it has a savepoint of its own."""
    taken_from_generation: int | None = None
    """The job's run that it was taken from; None if it came from elsewhere."""
    damaged: bool = False
    """Whether the newest check found something wrong with it."""
    beside: str | None = None
    """Why it is not on the line of the job's head; None if it is."""

    @property
    def is_whole(self) -> bool:
        """Whether the job can be restored from it, as far as is known."""
        return self.missing_blobs == 0 and not self.damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """The savepoint stays."""

    action: ClassVar[str] = "keep"
    savepoint_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispose:
    """The savepoint goes."""

    action: ClassVar[str] = "dispose"
    savepoint_id: str
    reason: str


Decision = Keep | Dispose


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """A decision on every savepoint of a job, the newest first."""

    job: str
    decisions: tuple[Decision, ...]

    @property
    def disposed(self) -> tuple[str, ...]:
        """Ids of the savepoints that go."""
        return tuple(found.savepoint_id for found in self.decisions if isinstance(found, Dispose))

    def as_markdown(self) -> str:
        """Return one row per savepoint: dry run and log alike."""
        lines = ["| savepoint | decision | reason |", "|---|---|---|"]
        for decision in self.decisions:
            lines.append(row((decision.savepoint_id, decision.action, decision.reason)))
        return "\n".join(lines)


def plan_retention(
    job: str, newest_first: Sequence[Candidate], policy: RetentionPolicy, *, now_ms: int
) -> RetentionPlan:
    """Decide on every savepoint, along the line of the job's head.

    Kept are: pinned ones, those in use, those whose owner has no complete one of its own yet, the newest
    whole one, the newest whole and verified one, and of the rest the newest whole ones as far as the policy
    allows; those beside the line count after all that are on it. One that is not whole does not count, and is
    disposed of with those of its age.
    """
    last_good = last_good_of(newest_first)
    decisions: list[Decision] = []
    counted = 0
    for candidate in newest_first:
        protected = _protection(candidate, last_good)
        expired = _expiry(candidate, policy, counted=counted, now_ms=now_ms)
        if (owner := candidate.owned) is not None:  # a savepoint from before the restore does not replace it
            own = next((found for found in newest_first if _is_own(found, owner)), None)
            if own is not None:
                expired = f"owned by {owner.by}, which has {own.savepoint_id} since"
            else:
                protected = protected or f"owned by {owner.by}, which has no newer complete one yet"
        wanted = protected is None and expired is None and candidate.is_whole
        if wanted or (candidate in last_good and candidate.pinned is None and candidate.in_use is None):
            counted += 1
        decisions.append(_decide(candidate, protected, expired, place=counted))
    return RetentionPlan(job=job, decisions=tuple(decisions))


def _is_own(found: Candidate, owner: Reference) -> bool:
    """Return whether a savepoint takes the place of the one that its owner was restored from.

    By the run, which depends on no clock; by the time where it was restored by hand, without a run.
    """
    if found.missing_blobs:
        return False
    if owner.generation is not None:
        return (found.taken_from_generation or 0) >= owner.generation
    return found.taken_at_ms > owner.at_ms


def last_good_of(newest_first: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return what stays under any policy: the newest whole one, and the newest whole and verified one.

    Both: the newest one is the job's state, which must not be lost even before it is verified; but only the
    verified one is known to be restorable. An abandoned savepoint is neither, unless no whole one is on the
    job's line.
    """
    whole = [candidate for candidate in newest_first if candidate.is_whole]
    whole = [candidate for candidate in whole if candidate.beside is None] or whole
    verified = [candidate for candidate in whole if candidate.verified is not None]
    return tuple(dict.fromkeys((*whole[:1], *verified[:1])))


def _protection(candidate: Candidate, last_good: Sequence[Candidate]) -> str | None:
    """Return why the savepoint stays at any age and place."""
    if candidate.pinned is not None:
        return f"pinned {candidate.pinned}"
    if candidate.in_use is not None:
        return f"in use: {candidate.in_use}"
    if candidate in last_good:
        verified = f"and verified ({candidate.verified}) " if candidate.verified else ""
        return f"the newest complete {verified}one"
    return None


def _expiry(candidate: Candidate, policy: RetentionPolicy, *, counted: int, now_ms: int) -> str | None:
    """Return why the policy does not keep the savepoint any more."""
    age_s = (now_ms - candidate.taken_at_ms) / 1000
    if policy.max_age_s is not None and age_s > policy.max_age_s:
        return f"{age_s:.0f} s old, max_age_s is {policy.max_age_s:g}"
    if policy.max_count is not None and counted >= policy.max_count:
        return f"{counted} newer complete ones are kept, max_count is {policy.max_count}"
    return None


def _decide(candidate: Candidate, protected: str | None, expired: str | None, *, place: int) -> Decision:
    damage = f"; {candidate.missing_blobs} of its blobs are missing" if candidate.missing_blobs else ""
    damage += "; a check found it damaged" if candidate.damaged else ""
    damage += f"; {candidate.beside}" if candidate.beside is not None else ""
    if protected is not None:
        return Keep(savepoint_id=candidate.savepoint_id, reason=protected + damage)
    if expired is not None:
        return Dispose(savepoint_id=candidate.savepoint_id, reason=expired + damage)
    counted = f"number {place} of the newest complete ones"
    reason = counted + damage if candidate.is_whole else damage.removeprefix("; ")
    return Keep(savepoint_id=candidate.savepoint_id, reason=reason)
