"""A small explicit-state model of the offline lock: a caller that holds a job while no driver runs.

D is the driver of generation 1, R starts it again; C holds the job as generation 2, copies the checkpoint,
and says ``closed``; M wants the job and finds a lock in its way; S starts generation 3. A driver that is
silent for its lease has ended itself, so D is either up or gone. Everybody else may sleep before any step,
for any time, and so be taken for dead; whoever never wakes is a crash. Each rule names the code that keeps
it; taking one out must break something.
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
    """What the protocol demands; True keeps the rule. All are kept in ``jobs.stopped.offline_lock``."""

    await_driver: bool = True
    """The driver before has closed, or was silent for its lease (``await_end``)."""
    beat_before_taking: bool = True
    """The lock has a heartbeat before it takes the job (``_taken``)."""
    take_if_unchanged: bool = True
    """It takes the job only as it was before it waited for that (``_take``)."""
    close_if_unchanged: bool = True
    """Its last word replaces its own heartbeat only (``_HeartbeatThread.end``)."""
    fail_before_giving_back: bool = True
    """Whoever gives the job back has first written the lock's last word (``give_back_abandoned``)."""
    fail_if_silent: bool = True
    """It writes that only if the heartbeat that was silent is still there (the same)."""
    next_gives_back: bool = True
    """A lock that was left is no reason to refuse a start for ever (the same)."""
    give_back_if_named: bool = True
    """The job is given back only while it still names the lock (``_give_back``)."""


RULES = tuple(field.name for field in fields(Rules))
DONE: Final = 99
CLOSED: Final = 98
"""How the lock has ended if it told its caller that the job is closed."""
MOST_BATCHES: Final = 2
RUN, LOCK, NEXT = 1, 2, 3


class State(NamedTuple):
    """The store, and what everybody has in mind."""

    current: tuple[int, int] = (RUN, 0)
    """Which generation ``current.json`` names, and how often it was written: its version."""
    word: str = ""
    """What the lock's heartbeat says; empty before the first."""
    beat: int = 0
    batches: int = 1
    """That the driver of generation 1 has run."""
    d: bool = True
    s: bool = False
    c: int = 0
    c_seen: tuple[int, int] = (0, 0)
    c_copied: int = 0
    m: int = 0
    m_seen: tuple[int, int] = (0, 0)
    m_beat: int = 0
    r: int = 0
    r_seen: tuple[int, int] = (0, 0)
    s_at: int = 0
    s_seen: tuple[int, int] = (0, 0)


Step = tuple[str, State]


def explore(rules: Rules) -> tuple[int, Found | None]:
    """Return how many states can be reached, and the way to the first violation."""
    return search([State()], lambda state: _steps(state, rules), _violation)


def _violation(state: State, labels: Sequence[str]) -> str | None:
    if state.d and state.s:
        return "two drivers run the job"
    counts_as_closed = state.word == "closed" or state.c == CLOSED
    if counts_as_closed and state.batches != state.c_copied:
        return "the job counts as closed at a batch that its driver has gone past"
    if not labels and state.current[0] == LOCK and state.word != "closed":
        return "nobody can have the job any more"
    return None


def _steps(state: State, rules: Rules) -> Iterator[Step]:
    yield from _driver(state)
    yield from _lock(state, rules)
    yield from _other(state, rules)
    yield from _relaunch(state)
    yield from _next(state)


def _named(state: State, generation: int) -> tuple[int, int]:
    return (generation, state.current[1] + 1)


def _driver(state: State) -> Iterator[Step]:
    if state.d and state.batches < MOST_BATCHES:
        yield "D commits a batch", state._replace(batches=state.batches + 1)
    if state.d:
        yield "D dies", state._replace(d=False)


def _lock(state: State, rules: Rules) -> Iterator[Step]:  # noqa: C901 - a table of steps
    """Steps of C: 0 look, 1 wait for D, 2 beat, 3 take the job, 4 copy, 5 close; 6 to 8 give it back."""
    if 0 < state.c < CLOSED:
        yield "C dies", state._replace(c=DONE)
    match state.c:
        case 0 if state.current[0] == RUN:
            yield "C looks whom the job names", state._replace(c=1, c_seen=state.current)
        case 1 if not state.d or not rules.await_driver:
            yield "C finds D silent", state._replace(c=2 if rules.beat_before_taking else 3)
        case 2:
            beating = state._replace(word="standby", beat=1)
            yield "C beats", beating._replace(c=3 if rules.beat_before_taking else 4)
        case 3 if state.c_seen == state.current or not rules.take_if_unchanged:
            step = 4 if rules.beat_before_taking else 2
            yield "C takes the job", state._replace(c=step, current=_named(state, LOCK))
        case 3:
            yield "C finds that the job is another's", state._replace(c=6)
        case 4:
            if state.beat == 1 and state.word == "standby":
                yield "C beats again", state._replace(beat=2)
            yield "C copies", state._replace(c=5, c_copied=state.batches)
            yield "C cannot copy", state._replace(c=6)
        case 5 if state.word == "standby" or not rules.close_if_unchanged:
            yield "C says closed", state._replace(c=CLOSED, word="closed")
        case 5:
            yield "C finds itself given up", state._replace(c=DONE)
        case 6:
            failed = state._replace(c=7, word="failed" if state.word == "standby" else state.word)
            yield "C says failed", failed
        case 7:
            yield "C looks whom the job names", state._replace(c=8, c_seen=state.current)
        case 8:
            yield "C gives the job back", _given_back(state, state.c_seen, rules)._replace(c=DONE)


def _given_back(state: State, seen: tuple[int, int], rules: Rules) -> State:
    """Let the job name generation 1 again, if it names the lock and nobody was faster."""
    if rules.give_back_if_named and (seen[0] != LOCK or seen != state.current):
        return state
    return state._replace(current=_named(state, RUN))


def _other(state: State, rules: Rules) -> Iterator[Step]:
    """Steps of M: 0 find a lock, 1 say ``failed`` in its place once it was silent, 2 and 3 give back."""
    match state.m:
        case 0 if state.current[0] == LOCK and state.word != "closed" and rules.next_gives_back:
            silent = 1 if state.word == "standby" and rules.fail_before_giving_back else 2
            yield "M finds the lock silent", state._replace(m=silent, m_beat=state.beat)
        case 1 if state.word == "standby" and (state.beat == state.m_beat or not rules.fail_if_silent):
            yield "M says failed for it", state._replace(m=2, word="failed")
        case 1 if not rules.fail_if_silent:
            yield "M says failed for it", state._replace(m=2, word="failed")
        case 1:
            yield "M finds that it is alive", state._replace(m=0)
        case 2:
            yield "M looks whom the job names", state._replace(m=3, m_seen=state.current)
        case 3:
            yield "M gives the job back", _given_back(state, state.m_seen, rules)._replace(m=0)


def _relaunch(state: State) -> Iterator[Step]:
    match state.r:
        case 0 if state.current[0] == RUN and not state.d:
            yield "R finds D gone", state._replace(r=1, r_seen=state.current)
        case 1 if state.r_seen == state.current:
            yield "R has D take the job again", state._replace(r=DONE, current=_named(state, RUN), d=True)
        case 1:
            yield "R finds that the job is another's", state._replace(r=0)


def _next(state: State) -> Iterator[Step]:
    match state.s_at:
        case 0 if (state.current[0] == RUN and not state.d) or (
            state.current[0] == LOCK and state.word == "closed"
        ):
            yield "S finds the job stopped", state._replace(s_at=1, s_seen=state.current)
        case 1 if state.s_seen == state.current:
            yield "S takes the job", state._replace(s_at=DONE, current=_named(state, NEXT), s=True)
        case 1:
            yield "S finds that the job is another's", state._replace(s_at=0)
