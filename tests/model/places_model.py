"""A small explicit-state model of one place for checkpoints, and of all who take it for their own.

A is the job that has it; N is the same job begun anew, after its records were deleted by hand; K and C are
the job in copies of the root, which have its records, claims among them: K in one that nobody adopted, C in
one that was adopted as a copy and has an id of its own. P and Q are prunes of A's root and of C's, to which
the place is an old one. Everybody may sleep before any step, and whoever never wakes is a crash. Something
that nobody marked may be there from the start. Each rule names the code that keeps it; taking one out must
break something.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.model.search import search

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.model.search import Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What whoever uses a place keeps to; True keeps the rule."""

    root_where_it_was: bool = True
    """A root that is not where it was created is not used (``Root.require_at``)."""
    refuse_unmarked: bool = True
    """A place with something in it, and no mark, is refused (``places.own_place``)."""
    mark_before_write: bool = True
    """The mark is there before anything else is written (``Admission._own_place``)."""
    create_once: bool = True
    """It is created, never replaced (``places.own_place``)."""
    judge_what_is_there: bool = True
    """After that the mark is judged that is there, whoever has left it (the same)."""
    root_id: bool = True
    """The mark names its root by the id of that (``places.OwnersMark``)."""
    claim_digest: bool = True
    """And the claim under which it was left (the same)."""
    remove_own_only: bool = True
    """A prune removes a place that bears its own mark (``checkpoints.free_checkpoints``)."""
    mark_goes_last: bool = True
    """It removes the mark last (``checkpoints.remove_all``)."""


RULES = tuple(field.name for field in fields(Rules))
DONE: Final = 99


class Identity(NamedTuple):
    """What a mark says, and what a job compares it with."""

    root: str
    claim: str


JOBS: Final = {
    "A": Identity("a", "first"),
    "N": Identity("a", "anew"),
    "K": Identity("a", "first"),
    "C": Identity("c", "first"),
}
PRUNES: Final = {"P": "A", "Q": "C"}
STRANGER: Final = "X"


class State(NamedTuple):
    """The place, and where everybody is."""

    mark: Identity | None = None
    content: frozenset[str] = frozenset()
    """Whose files are there."""
    at: tuple[int, ...] = (0,) * len(JOBS)
    prunes: tuple[int, ...] = (0,) * len(PRUNES)
    began_anew: bool = False
    """A's records are gone: its driver has ended, and nobody prunes by them."""
    wrong: str = ""


Step = tuple[str, State]


def explore(rules: Rules) -> tuple[int, Found | None]:
    """Return how many states can be reached, and the way to the first violation."""
    begins = (State(), State(content=frozenset({STRANGER})))
    return search(begins, lambda state: _steps(state, rules), _violation)


def _violation(state: State, _labels: Sequence[str]) -> str | None:
    if state.wrong:
        return state.wrong
    if len(state.content) > 1:
        return f"files of {' and '.join(sorted(state.content))} in one place"
    if state.mark is None and state.content & JOBS.keys() and any(0 < at < DONE for at in state.prunes):
        return "files are left that bear no mark: nobody frees them"
    return None


def _steps(state: State, rules: Rules) -> Iterator[Step]:
    if not state.began_anew and _at(state, "A") in (0, DONE):
        yield "A's records are deleted", state._replace(began_anew=True)
    for job in JOBS:
        if _may_run(state, job):
            yield from _job(state, rules, job)
    for number, owner in enumerate(PRUNES.values()):
        has_ended = _at(state, owner) in (0, DONE) and not (owner == "A" and state.began_anew)
        if has_ended or state.prunes[number]:
            yield from _prune(state, rules, number, owner)


def _may_run(state: State, job: str) -> bool:
    """Return whether a driver may come, or go on: none enters an old place that is being freed."""
    if job == "N":
        return state.began_anew
    if job == "A" and state.began_anew:
        return False
    return job not in PRUNES.values() or not state.prunes[tuple(PRUNES.values()).index(job)]


def _at(state: State, job: str) -> int:
    return state.at[tuple(JOBS).index(job)]


def _goes(state: State, job: str, step: int, **changes: object) -> State:
    at = tuple(step if name == job else now for name, now in zip(JOBS, state.at, strict=True))
    return state._replace(at=at, **changes)  # type: ignore[arg-type]


def _job(state: State, rules: Rules, job: str) -> Iterator[Step]:  # noqa: C901 - a table of steps
    """Steps of a driver: 0 look for a mark, 1 for anything, 2 mark, 3 judge, 5 write."""
    own = JOBS[job]
    match _at(state, job):
        case 0 if job == "K" and rules.root_where_it_was:
            return
        case 0:
            yield f"{job} looks for a mark", _goes(state, job, 1 if state.mark is None else 3)
        case 1 if rules.refuse_unmarked and state.content:
            yield f"{job} refuses what is there", _goes(state, job, DONE)
        case 1:
            yield f"{job} finds nothing", _goes(state, job, 2 if rules.mark_before_write else 4)
        case 2:
            mark = state.mark if state.mark is not None and rules.create_once else own
            yield f"{job} marks", _goes(state, job, 3 if rules.judge_what_is_there else 5, mark=mark)
        case 3 if state.mark is None:
            yield f"{job} finds its mark gone", _goes(state, job, DONE)
        case 3 if _is_own(own, state.mark, rules):
            yield f"{job} finds its mark", _goes(state, job, 5)
        case 3:
            refused = "A is refused its own place" if job == "A" and state.mark == own else ""
            yield f"{job} refuses another's", _goes(state, job, DONE, wrong=refused)
        case 4:
            yield f"{job} writes", _goes(state, job, 2, content=state.content | {job})
        case 5:
            yield f"{job} writes", _goes(state, job, DONE, content=state.content | {job})


def _is_own(own: Identity, mark: Identity | None, rules: Rules) -> bool:
    """Compare as ``places._is_of`` does."""
    if mark is None:
        return False
    same_root = mark.root == own.root or not rules.root_id
    return same_root and (mark.claim == own.claim or not rules.claim_digest)


def _prune(state: State, rules: Rules, number: int, owner: str) -> Iterator[Step]:
    """Steps of a prune: 0 judge the mark, 1 and 2 remove; it ends with the second."""
    name, first = tuple(PRUNES)[number], "content" if rules.mark_goes_last else "mark"

    def goes(step: int, **changes: object) -> State:
        prunes = tuple(step if place == number else now for place, now in enumerate(state.prunes))
        return state._replace(prunes=prunes, **changes)  # type: ignore[arg-type]

    match state.prunes[number]:
        case 0 if state.mark is not None and (
            not rules.remove_own_only or _is_own(JOBS[owner], state.mark, rules)
        ):
            yield f"{name} finds its mark", goes(1)
        case 1 | 2 as step:
            if (first == "content") == (step == 1):
                others = sorted(state.content - {owner})
                wrong = f"{name} removed files of {', '.join(others)}" if others else ""
                yield f"{name} removes the files", goes(step + 1, content=frozenset(), wrong=wrong)
            else:
                yield f"{name} removes the mark", goes(step + 1, mark=None)
        case 3:
            yield f"{name} has ended", goes(DONE)
