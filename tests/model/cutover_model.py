"""A small explicit-state model of one migration: who may run, who stops whom, where producers write.

Processes: the old driver D1, the new one D2, the way back D3; the window's attempt A1, which may sleep
anywhere (its steps interleave freely) or be killed; and the last task S, which may begin at any time once
A1 has, be killed, and be tried again. Each rule names the code that keeps it; taking one out must break
something. Frozen drivers are left out: the lease bounds them, in time, which this model does not have.
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

    closed_first_and_guarded: bool = True
    """A stop ends with ``closed``, the report comes after it (``agent.run.end.RunEnd``); callers believe only
    ``closed`` (``jobs.request_slot.poll``); the guard requires it
    (``agent.board.takeover.require_predecessor``)."""
    one_replace: bool = True
    """Accept (``agent.board.inbox``) and cancel (``jobs.request_slot.withdraw``) are one
    conditional replace."""
    token: bool = True
    """The switch refuses a lower token (``jobs.migration.producers.StoreProducerSwitch.apply``)."""
    current_if_unchanged: bool = True
    """``current.json`` is taken by replace-if-unchanged (``agent.board.takeover.take_current``)."""
    check_between_look_and_write: bool = True
    """An attempt confirms it is the newest after it read the slot
    (``jobs.request_slot.send(confirm=...)``)."""
    cancel_an_empty_slot: bool = True
    """Going back closes an empty slot too (``jobs.request_slot.withdraw``)."""
    standby_first: bool = True
    """Nothing is held or asked before the next driver has come up, rehearsed, and waits
    (``jobs.cutover.steps.start_standby``)."""
    release_after_takeover: bool = True
    """Producers wait until ``current.json`` names the winner (``jobs.migration.cutover.roll_back``)."""
    takeover_within_hold: bool = True
    """The new driver takes over only while producers are certain to be held (``HeldWatch``)."""
    ends_where_it_runs: bool = True
    """A hold that ends by itself lets producers write where the job runs
    (``jobs.migration.producers.StoreProducerSwitch.read``)."""


RULES = tuple(field.name for field in fields(Rules))

Driver = Literal[
    "none",
    "rehearsing",
    "waiting",
    "seen",
    "running",
    "accepting",
    "stopping",
    "reporting",
    "dead",
    "failed",
    "exited",
]
Slot = Literal["empty", "sent", "accepted", "cancelled", "lost"]
Switch = Literal["release_old", "hold", "release_new"]


class State(NamedTuple):
    """Everything in the store and in the processes' heads."""

    d1: Driver = "running"
    d2: Driver = "rehearsing"
    d3: Driver = "none"
    current: int = 1
    overwritten: bool = False  # current.json was taken by two
    saw2: int = 0  # what D2 and D3 read in current.json before they take it
    saw3: int = 0
    batches: int = 0  # committed by the old lineage
    closed: int | None = None  # D1's heartbeat: closed at this batch
    report: int | None = None  # D1's end report
    slot: Slot = "empty"
    cancelled: bool = False  # only without one_replace: a cancel beside the slot
    go2: int | None = None  # closed_at
    go3: bool = False
    switch: Switch = "release_old"
    switch_token: int = 0
    leases: bool = True  # the switch's holds end by themselves
    leased: bool = False  # the hold has not ended by itself
    strayed: bool = False  # it has, and producers wrote to the old cluster
    ran2: bool = False
    ran3: bool = False
    attempt: int = 0  # the journal's
    a_step: int = 0  # A1: see _attempt
    a_slot: Slot | None = None
    s_step: int = -1  # S: -1 not begun, 9 done
    s_number: int = 0
    s_choice: Switch = "hold"
    kills: int = 2


Step = tuple[str, State]
DONE = 9


def successors(state: State, rules: Rules) -> Iterator[Step]:
    """Yield every step that somebody can take."""
    yield from _old_driver(state, rules)
    yield from _follower(state, rules, 2)
    yield from _follower(state, rules, 3)
    yield from _attempt(state, rules)
    yield from _last_task(state, rules)
    if (
        state.switch == "hold" and state.leased and state.leases
    ):  # whoever renews it is dead, or sleeps for too long
        strayed = state.strayed or _obeyed(state._replace(leased=False), rules) == "release_old"
        yield "the hold ends", state._replace(leased=False, strayed=strayed)
    if state.kills > 0:
        yield from _kills(state)


def _kills(state: State) -> Iterator[Step]:
    fewer = state._replace(kills=state.kills - 1)
    for name in ("d1", "d2", "d3"):
        if getattr(state, name) not in ("none", "dead", "failed", "exited"):
            yield f"kill {name}", fewer._replace(**{name: "dead"})
    if 0 < state.a_step < DONE:
        yield "kill A1", fewer._replace(a_step=DONE)
    if 0 <= state.s_step < DONE:
        yield "kill S", fewer._replace(s_step=-1)


def _old_driver(state: State, rules: Rules) -> Iterator[Step]:
    match state.d1:
        case "running":
            if state.batches < 2:
                yield "D1 commits", state._replace(batches=state.batches + 1)
            if state.slot == "sent" and not (state.cancelled and not rules.one_replace):
                step: Driver = "stopping" if rules.one_replace else "accepting"
                slot: Slot = "accepted" if rules.one_replace else state.slot
                yield "D1 accepts", state._replace(d1=step, slot=slot)
        case "accepting":  # only without one_replace: it looked for a cancel before, and writes now
            yield "D1 accepts late", state._replace(d1="stopping", slot="accepted")
        case "stopping" if rules.closed_first_and_guarded:
            yield "D1 closes", state._replace(d1="reporting", closed=state.batches)
        case "stopping":
            yield "D1 reports", state._replace(d1="reporting", report=state.batches)
        case "reporting":
            yield "D1 exits", state._replace(d1="exited", closed=state.batches, report=state.batches)
        case "dead" if state.closed is None and state.current == 1:  # jobs.relaunch.ensure_running
            slot = "lost" if state.slot in ("sent", "accepted") else state.slot
            yield "D1 relaunched", state._replace(d1="running", slot=slot)


def _follower(state: State, rules: Rules, number: int) -> Iterator[Step]:
    """D2 and D3: wait for go, read current.json, guard, take it; D2 first tries itself on a copy."""
    me, saw = f"d{number}", f"saw{number}"
    told = state.go2 is not None if number == 2 else state.go3
    match getattr(state, me):
        case "rehearsing":
            yield "D2 has rehearsed", state._replace(d2="waiting")
            yield "D2's rehearsal fails", state._replace(d2="failed")
        case "waiting" if state.current not in (1, number):
            yield f"D{number} leaves", state._replace(**{me: "exited"})
        case "waiting" if told:
            if number == 2 and rules.closed_first_and_guarded and state.closed != state.go2:
                return
            yield f"D{number} looks", state._replace(**{me: "seen", saw: state.current})
        case "seen":
            if number == 2 and rules.takeover_within_hold and not state.leased:
                if state.current not in (1, 2):
                    yield "D2 leaves", state._replace(d2="exited")
                return
            changed = state.current != getattr(state, saw)
            if changed and rules.current_if_unchanged:
                yield f"D{number} loses", state._replace(**{me: "exited"})
            else:
                took = state._replace(
                    **{me: "running", f"ran{number}": True}, current=number, overwritten=changed
                )
                yield f"D{number} takes over", took
        case "dead" if state.current == number or (state.current == 1 and told):
            yield (
                f"D{number} relaunched",
                state._replace(**{me: "running" if state.current == number else "waiting"}),
            )


def _apply(state: State, rules: Rules, position: Switch, token: int) -> State | None:
    if rules.token and token < state.switch_token:
        return None
    return state._replace(
        switch=position, switch_token=max(token, state.switch_token), leased=position == "hold"
    )


def _obeyed(state: State, rules: Rules) -> Switch:
    """Return what producers do: a hold that has ended leads to where the job runs."""
    if state.switch != "hold" or state.leased:
        return state.switch
    return "release_new" if state.current == 2 and rules.ends_where_it_runs else "release_old"


def _attempt(state: State, rules: Rules) -> Iterator[Step]:
    """``jobs.migration.cutover.Cutover.run``, token 1; a step behind a check may still come late."""
    gone = "A1 gives way", state._replace(a_step=DONE)
    if state.a_step < 5:
        yield from _attempt_asks(state, rules, gone)
    else:
        yield from _attempt_goes(state, rules, gone)


def _attempt_asks(state: State, rules: Rules, gone: Step) -> Iterator[Step]:
    superseded = state.attempt > 1
    if state.a_step in (3, 4) and not state.leased:
        yield gone  # it finds its hold gone, and goes back: S
    match state.a_step:
        case 0 if state.attempt == 0:
            yield "A1 begins", state._replace(a_step=1, attempt=1)
        case 1:
            yield from [gone] if superseded else _await_standby(state, rules)
        case 2:  # may sleep between the check and this
            held = _apply(state, rules, "hold", 1)
            yield ("A1 holds", held._replace(a_step=3)) if held else gone
        case 3:  # reads the slot, then checks
            if superseded and rules.check_between_look_and_write:
                yield gone
            elif state.d1 == "running":
                yield "A1 looks at the slot", state._replace(a_step=4, a_slot=state.slot)
        case 4:
            if state.slot == state.a_slot and state.slot in ("empty", "lost", "cancelled"):
                yield "A1 asks to stop", state._replace(a_step=5, slot="sent")
            else:
                yield "A1 is late", state._replace(a_step=3 if not superseded else DONE)


def _await_standby(state: State, rules: Rules) -> Iterator[Step]:
    if rules.standby_first and state.d2 in ("dead", "failed"):
        yield "A1 gives up", state._replace(a_step=DONE)
    elif not rules.standby_first or state.d2 != "rehearsing":
        yield "A1 checks", state._replace(a_step=2)


def _attempt_goes(state: State, rules: Rules, gone: Step) -> Iterator[Step]:
    superseded = state.attempt > 1
    match state.a_step:
        case 5:
            yield from _await_stop(state, rules, superseded=superseded)
        case 6:  # the go may come late
            stopped = state.closed if rules.closed_first_and_guarded else state.report
            yield "A1 says go", state._replace(a_step=7, go2=stopped)
        case 7:
            if state.current == 2:
                yield "A1 sees the takeover", state._replace(a_step=8)
            elif superseded:
                yield gone
        case 8:
            released = _apply(state, rules, "release_new", 1)
            yield ("A1 releases", released._replace(a_step=DONE)) if released else gone


def _await_stop(state: State, rules: Rules, *, superseded: bool) -> Iterator[Step]:
    ended = state.closed if rules.closed_first_and_guarded else state.report
    if superseded:
        yield "A1 gives way", state._replace(a_step=DONE)
    elif ended is not None:
        yield "A1 believes the stop", state._replace(a_step=6)
    elif state.slot == "lost":
        yield "A1 asks anew", state._replace(a_step=3)


def _last_task(state: State, rules: Rules) -> Iterator[Step]:
    """``jobs.migration.cutover.settle``: token 1 + its try."""
    token = 1 + state.s_number
    match state.s_step:
        case -1 if state.a_step > 0:
            number = state.s_number + 1
            yield "S begins", state._replace(s_step=0, s_number=number, attempt=1 + number)
        case 0 if state.current == 2:
            yield "S finds D2", state._replace(s_step=5, s_choice="release_new")
        case 0:
            yield from _withdraw(state, rules)
        case 1 if state.closed is not None:  # the stop was accepted before: wait for how it ends
            yield "S sees closed", state._replace(s_step=3)
        case 1 if state.slot == "lost":
            yield "S sees it lost", state._replace(s_step=0)
        case 3:
            d3: Driver = "waiting" if state.d3 == "none" else state.d3
            step = 4 if rules.release_after_takeover else 5
            yield "S starts D3", state._replace(s_step=step, d3=d3, go3=True, s_choice="release_old")
        case 4 if state.current != 1:
            choice: Switch = "release_new" if state.current == 2 else "release_old"
            yield "S sees the winner", state._replace(s_step=5, s_choice=choice)
        case 5:
            released = _apply(state, rules, state.s_choice, token)
            if released is not None:
                yield f"S: {state.s_choice}", released._replace(s_step=DONE)


def _withdraw(state: State, rules: Rules) -> Iterator[Step]:
    back = state._replace(s_step=5, s_choice="release_old")
    if state.closed is not None:
        yield "S finds closed", state._replace(s_step=3)
    elif state.slot == "accepted":
        yield "S is too late to cancel", state._replace(s_step=1)
    elif not rules.one_replace:
        yield "S cancels beside the slot", back._replace(cancelled=True)
    elif state.slot == "empty" and not rules.cancel_an_empty_slot:
        yield "S finds nothing to cancel", back
    else:
        yield "S cancels", back._replace(slot="cancelled")


def violation(state: State, rules: Rules) -> str | None:
    """Return what must never be, in any state."""
    runners = [n for n in (1, 2, 3) if getattr(state, f"d{n}") in ("running", "accepting", "stopping")]
    if len(runners) > 1 or state.overwritten:
        return f"second runner: {runners}"
    if state.d2 == "failed" and (state.switch == "hold" or state.closed is not None):
        return "held up for a version that is known to be broken"
    if state.ran2 and state.go2 is not None and state.batches > state.go2:
        return "doubled: the old driver committed behind the savepoint that the new one started from"
    if state.ran2 and state.ran3:
        return "doubled: the new driver and the way back both ran"
    if state.d2 == "running" and state.strayed and state.switch == "hold":
        return "lost: producers wrote to the old cluster behind the proof, and the new driver took over"
    if state.d2 == "running" and _obeyed(state, rules) == "release_old":
        return "lost: producers write to the old cluster, the job reads the new one"
    if state.d3 == "running" and _obeyed(state, rules) == "release_new":
        return "lost: producers write to the new cluster, the job reads the old one"
    return None


def at_rest(state: State, rules: Rules) -> str | None:
    """Return what is wrong with a state in which nobody has anything left to do."""
    if getattr(state, f"d{state.current}") != "running":
        return f"dead end: no driver runs (current is {state.current})"
    if _obeyed(state, rules) != ("release_new" if state.current == 2 else "release_old"):
        return f"dead end: producers are at {state.switch}, generation {state.current} runs"
    return None


def explore(rules: Rules) -> tuple[int, Found | None]:
    """Return how many states can be reached, and the way to the first violation."""

    def wrong(state: State, labels: Sequence[str]) -> str | None:
        at_work = any(not label.startswith("kill") for label in labels)
        return violation(state, rules) or (None if at_work else at_rest(state, rules))

    return search([State(), State(leases=False)], lambda state: successors(state, rules), wrong)
