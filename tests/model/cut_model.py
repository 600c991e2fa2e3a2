"""A small explicit-state model of two jobs cut together and stopped.

A caller asks the jobs A and B, tells them the barrier once both are held, and decides once both have their
savepoints; a person may cancel A's request. Everybody may be late at every step, the caller and B's driver
may die, and B's is relaunched. Each rule names the code that keeps it; taking one out must break something.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, NamedTuple

from tests.model.search import search

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.model.search import Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the protocol demands; True keeps the rule."""

    hold_expires: bool = True
    """An agent waits for the others for ``hold_s`` at most (``Agreement``)."""
    expiry_decides: bool = True
    """An agent that waits no longer gives the cut up for all (``Agreement.abandon``)."""
    first_decision_counts: bool = True
    """Whoever decides second obeys the first (``CutBoard.decide``)."""
    complete_after_savepoints: bool = True
    """The caller decides once every job has its savepoint (``jobs.cut``)."""
    stop_after_complete: bool = True
    """A job stops only once the cut is complete (``Agreement.require_complete``)."""
    final_by_replace: bool = True
    """A stop is taken from those who could cancel it by their own replace (``HeldCut._make_final``)."""


RULES = tuple(field.name for field in fields(Rules))
Step = Literal["asked", "held", "saved", "final", "stopped", "goes on", "killed"]
ENDED = ("stopped", "goes on", "killed")


class State(NamedTuple):
    """Both drivers, the caller, and what stands in the store."""

    a: Step = "asked"
    b: Step = "asked"
    saved: frozenset[str] = frozenset()
    caller: Literal["waits", "told", "done", "dead"] = "waits"
    barrier: bool = False
    decision: Literal["none", "complete", "abandoned"] = "none"
    cancel: Literal["none", "won", "late"] = "none"  # of A's request


Move = tuple[str, State]


def successors(state: State, rules: Rules) -> Iterator[Move]:
    """Yield what can happen next."""
    yield from _caller(state, rules)
    for job in "ab":
        yield from _agent(job, state, rules)
    if state.cancel == "none":
        late = state.a == "stopped" or (state.a == "final" and rules.final_by_replace)
        yield "somebody cancels A", state._replace(cancel="late" if late else "won")
    if state.b not in ENDED:
        yield "B is killed; its next driver goes on", state._replace(b="killed")


def _caller(state: State, rules: Rules) -> Iterator[Move]:
    if state.caller in ("done", "dead"):
        return
    yield "the caller dies", state._replace(caller="dead")
    yield "the caller gives up", _decide(state, "abandoned")._replace(caller="done")
    past_held = ("held", "saved", "final")
    if state.caller == "waits" and state.a in past_held and state.b in past_held:
        yield "the caller tells the barrier", state._replace(caller="told", barrier=True)
    if state.caller == "told" and (state.saved == {"a", "b"} or not rules.complete_after_savepoints):
        yield "the caller completes the cut", _decide(state, "complete")._replace(caller="done")


def _agent(job: str, state: State, rules: Rules) -> Iterator[Move]:
    name, step = job.upper(), getattr(state, job)
    cancelled = job == "a" and state.cancel == "won"

    def move(to: Step, after: State = state) -> State:
        return after._replace(**{job: to})

    if cancelled and step in ("asked", "held", "saved"):
        yield f"{name} finds itself cancelled", move("goes on", _decide(state, "abandoned"))
    if step == "asked":
        yield f"{name} is held", move("held")
    elif step == "held" and state.barrier:
        yield f"{name} is at the barrier and saved", move("saved", state._replace(saved=state.saved | {job}))
    elif step == "saved":
        if not (cancelled and rules.final_by_replace):
            yield f"{name} makes its stop final", move("final" if rules.stop_after_complete else "stopped")
    elif step == "final" and state.decision == "complete":
        yield f"{name} stops", move("stopped")
    if step in ("held", "saved", "final") and state.decision == "abandoned":
        yield f"{name} finds the cut abandoned", move("goes on")
    if step in ("held", "final") and rules.hold_expires:
        yield from _expire(job, step, state, rules)


def _expire(job: str, step: Step, state: State, rules: Rules) -> Iterator[Move]:
    """Wait no longer; the first decision counts, also if it came in between."""
    decided = _decide(state, "abandoned") if rules.expiry_decides else state
    stops = step == "final" and decided.decision == "complete" and rules.first_decision_counts
    yield f"{job.upper()} waits no longer", decided._replace(**{job: "stopped" if stops else "goes on"})


def _decide(state: State, decision: Literal["complete", "abandoned"]) -> State:
    return state._replace(decision=decision) if state.decision == "none" else state


def violation(state: State, *, terminal: bool) -> str | None:
    """Return what must not be."""
    if state.decision == "complete" and state.saved != {"a", "b"}:
        return "the cut is complete and a savepoint is missing"
    if "stopped" in (state.a, state.b) and state.decision != "complete":
        return "a job has stopped for a cut that is not complete"
    if state.cancel == "won" and state.a == "stopped":
        return "A has stopped although its cancel won"
    if not terminal:
        return None
    if any(step not in ENDED for step in (state.a, state.b)):
        return "a job is held for ever"
    if {state.a, state.b} == {"stopped", "goes on"} and state.cancel != "won":
        return "one job has stopped and the other goes on"
    return None


def explore(rules: Rules) -> tuple[int, Found | None]:
    """Return how many states can be reached, and the way to the first violation."""
    return search(
        [State()],
        lambda state: successors(state, rules),
        lambda state, labels: violation(state, terminal=_is_terminal(state, labels)),
    )


def _is_terminal(state: State, labels: Sequence[str]) -> bool:
    """Return whether nobody who is bound to act can: deaths and cancels need not come."""
    optional = ("somebody cancels", "the caller", "B is killed")
    return state.caller in ("done", "dead") and all(label.startswith(optional) for label in labels)
