"""A small explicit-state model of one generation: who may start its driver again, and who may run batches.

Two callers on two hosts, and the drivers that they start; and a start of the next generation, planned when
the driver was found dead: from what it had left by then. Time is left out but for what leases say of it: a
reader may find a driver silent beyond its lease if it wrote nothing since the reader's first look. A store
may be out of reach for one process alone (``cut``) or for everybody (``outage``). A driver that cannot write
ends by rule 5 of the page; each rule names the code that keeps it, and taking one out must break something.

A caller that has seen the end of the driver that spoke last records it, and who waits for that driver is sure
of it at once; else it is sure once that one was silent. Between being sure and running others may act.

What is proved about an outage: a driver that goes on without having confirmed its lease (``ends_itself``
taken out) is a second runner, cut off alone or in an outage of all, and with no mistake of anybody's. In an
outage of all nobody takes over; but who looks right behind it finds the heartbeat as it was before, and may
take over before the driver has written again.
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

    ends_itself: bool = True
    """Who could not write its heartbeat for the lease ends (``agent.board.heartbeat.Watchdog``)."""
    waits_for_silence: bool = True
    """A driver runs no batch before the earlier one was silent for the lease (``takeover.begin``)."""
    one_submit: bool = True
    """One caller creates the next submit, the other starts nothing (``jobs.relaunch.submit``)."""
    surplus_leaves: bool = True
    """Who finds an earlier driver alive leaves (``agent.board.takeover._await_earlier``)."""
    speaker_counts: bool = True
    """Callers ask the driver that writes the heartbeat, not the newest process (``jobs.status.classify``)."""
    lease_decides: bool = True
    """Silence beyond the lease is death, whatever cannot be seen (``jobs.status.Run.is_alive``)."""
    names_the_ended: bool = True
    """The next generation's driver fails if another driver than the one that its order names as ended has the
    job since (``TakeoverOrder.ended``, ``agent.board.takeover.require_predecessor``)."""
    records_what_it_saw: bool = True
    """An end is recorded only of a driver that was seen to be gone, or silent for its lease, not of one that
    is taken for dead (``jobs.relaunch.end_for``)."""
    names_whose_end: bool = True
    """A recorded end is of one driver, and tells of no other (``takeover._seen_to_have_ended``)."""
    one_speaks: bool = True
    """Who is sure of a driver's end runs only if none has spoken since: its first heartbeat replaces that
    driver's last one (``HeartbeatWriter``), its ``current.json`` the one that it saw (``take_current``)."""


RULES = tuple(field.name for field in fields(Rules))

Driver = Literal["none", "waiting", "running", "gone"]
Caller = Literal["looks", "found it dead", "done"]
Start = Literal["none", "waits", "runs", "failed"]


class State(NamedTuple):
    """Everything in the store and in the processes' heads."""

    drivers: tuple[Driver, ...] = ("running", "none", "none")
    speaker: int = 0  # who wrote the heartbeat last
    submits: int = 1
    saw: tuple[int, int] = (1, 1)  # the newest submit that each caller saw
    callers: tuple[Caller, Caller] = ("looks", "looks")
    cut: int = -1  # a driver that cannot reach the store; 9: nobody can
    quiet: bool = False  # the speaker wrote nothing for the lease, as anybody can see
    faults: int = 2
    alone: bool = True  # whether one driver alone may be cut off
    mistakes: int = 1  # a driver that lives is taken for dead: by a person, or by a cluster that restarts it
    start: Start = "none"  # the next generation's driver
    ended: int = -1  # whom its order names
    recorded: tuple[bool, bool, bool] = (False, False, False)  # whose end is
    sure: tuple[int, int, int] = (-1, -1, -1)  # of whose end each waiting driver is
    start_sure: int = -1


START = State()
Step = tuple[str, State]
ALL = 9


def successors(state: State, rules: Rules) -> Iterator[Step]:
    """Yield every step that somebody can take."""
    yield from _faults(state)
    for number, driver in enumerate(state.drivers):
        if driver in ("waiting", "running"):
            yield from _driver(state, rules, number)
    if state.cut != ALL:
        for number in (0, 1):
            yield from _caller(state, rules, number)
        yield from _start(state, rules)


def _faults(state: State) -> Iterator[Step]:
    if state.faults > 0:
        fewer = state._replace(faults=state.faults - 1)
        for number, driver in enumerate(state.drivers):
            if driver in ("waiting", "running"):
                yield f"kill D{number}", fewer._replace(drivers=_with(state.drivers, number, "gone"))
                if state.cut == -1 and state.alone:
                    yield f"cut D{number} off", fewer._replace(cut=number)
        if state.cut == -1:
            yield "outage", fewer._replace(cut=ALL)
    if state.cut != -1:
        yield "the store is back", state._replace(cut=-1)


def _with(drivers: tuple[Driver, ...], number: int, driver: Driver) -> tuple[Driver, ...]:
    return (*drivers[:number], driver, *drivers[number + 1 :])


def _reaches(state: State, number: int) -> bool:
    return state.cut not in (number, ALL)


def _driver(state: State, rules: Rules, number: int) -> Iterator[Step]:
    leaves = state._replace(drivers=_with(state.drivers, number, "gone"))
    if state.drivers[number] == "waiting":
        yield from _waiting(state, rules, number, leaves)
    elif _reaches(state, number) and state.speaker == number and state.quiet:
        yield f"D{number} beats", state._replace(quiet=False)
    elif _reaches(state, number) and (state.speaker != number or state.start == "runs"):
        yield f"D{number} is superseded", leaves
    elif not _reaches(state, number) and rules.ends_itself:
        yield f"D{number} ends itself", leaves
    mute = state.drivers[number] == "running" and not _reaches(state, number) and state.speaker == number
    if mute and not rules.ends_itself and not state.quiet:
        yield "a lease passes", state._replace(quiet=True)  # else the driver has ended by then


def _waiting(state: State, rules: Rules, number: int, leaves: State) -> Iterator[Step]:
    if not _reaches(state, number):
        return
    if state.start == "runs":
        yield f"D{number} finds the next generation and leaves", leaves
    elif state.sure[number] != -1:
        if state.sure[number] == state.speaker or not rules.one_speaks:
            running = _with(state.drivers, number, "running")
            yield f"D{number} runs", state._replace(drivers=running, speaker=number, quiet=False)
        else:
            yield f"D{number} is superseded", leaves
    elif _is_silent(state) or _is_recorded(state, rules) or not rules.waits_for_silence:
        sure = (*state.sure[:number], state.speaker, *state.sure[number + 1 :])
        yield f"D{number} is sure that D{state.speaker} has ended", state._replace(sure=sure)
    elif rules.surplus_leaves and _reaches(state, state.speaker):
        yield f"D{number} leaves", leaves


def _is_silent(state: State) -> bool:
    return state.quiet or state.drivers[state.speaker] == "gone"


def _is_recorded(state: State, rules: Rules) -> bool:
    return state.recorded[state.speaker] if rules.names_whose_end else any(state.recorded)


def _start(state: State, rules: Rules) -> Iterator[Step]:
    """Plan a start for the end of the driver that spoke last, and let its driver wait for that end."""
    match state.start:
        case "none" if _is_silent(state) and "waiting" not in state.drivers and rules.lease_decides:
            yield (
                f"a start is planned behind D{state.speaker}",
                state._replace(start="waits", ended=state.speaker),
            )
        case "waits" if rules.names_the_ended and state.speaker != state.ended:
            yield "the start's driver fails", state._replace(start="failed")
        case "waits" if state.start_sure == -1 and (_is_silent(state) or _is_recorded(state, rules)):
            yield "the start's driver is sure", state._replace(start_sure=state.speaker)
        case "waits" if state.start_sure != -1:
            free = state.start_sure == state.speaker or not rules.one_speaks
            yield (
                ("the start's driver takes over", state._replace(start="runs"))
                if free
                else ("the start's driver leaves", state._replace(start="failed"))
            )


def _caller(state: State, rules: Rules, number: int) -> Iterator[Step]:
    silent = _is_silent(state)
    comes_up = any(one == "waiting" for one in state.drivers)
    if state.start == "runs" and state.callers[number] == "looks":
        return
    if state.mistakes > 0 and state.callers[number] == "looks":
        saw = (state.submits, state.saw[1]) if number == 0 else (state.saw[0], state.submits)
        told: tuple[Caller, Caller] = _said(state.callers, number, "found it dead")
        yield f"C{number} is told that it is dead", state._replace(callers=told, saw=saw, mistakes=0)
    match state.callers[number]:
        case "looks" if silent and not comes_up and rules.lease_decides:
            saw = (state.submits, state.saw[1]) if number == 0 else (state.saw[0], state.submits)
            found: tuple[Caller, Caller] = _said(state.callers, number, "found it dead")
            yield f"C{number} finds it dead", state._replace(callers=found, saw=saw)
        case "found it dead":
            yield from _record(state, rules, number)
            again = state._replace(callers=_said(state.callers, number, "looks"))
            free = [n for n, one in enumerate(state.drivers) if one == "none"]
            if rules.one_submit and state.saw[number] != state.submits:
                yield f"C{number} finds that another started it", again
            elif free:
                drivers = _with(state.drivers, free[0], "waiting")
                yield (
                    f"C{number} starts D{free[0]}",
                    again._replace(drivers=drivers, submits=state.submits + 1),
                )
            else:
                yield f"C{number} gives up", again  # the model's end, not the protocol's


def _record(state: State, rules: Rules, number: int) -> Iterator[Step]:
    was_seen = _is_silent(state)
    if (was_seen or not rules.records_what_it_saw) and not state.recorded[state.speaker]:
        recorded = (*state.recorded[: state.speaker], True, *state.recorded[state.speaker + 1 :])
        yield f"C{number} records the end of D{state.speaker}", state._replace(recorded=recorded)


def _said(callers: tuple[Caller, Caller], number: int, caller: Caller) -> tuple[Caller, Caller]:
    return (caller, callers[1]) if number == 0 else (callers[0], caller)


def violation(state: State, rules: Rules) -> str | None:
    """Return what must never be, in any state."""
    runners = [number for number, one in enumerate(state.drivers) if one == "running"]
    if len(runners) + (state.start == "runs") > 1:
        return f"second runner: {runners}"
    if state.start == "runs" and state.speaker != state.ended:
        return f"rewound: what D{state.speaker} ran since the start was planned is left behind"
    both = [number for number, one in enumerate(state.drivers) if one == "waiting"]
    if len(both) > 1 and rules.surplus_leaves and state.mistakes == 1:  # else somebody was told so
        return f"two drivers were started for one that died: {both}"
    if not rules.speaker_counts and runners and any(number > runners[0] for number in both):
        return "uncontrollable: callers ask the newest process, which waits for the one that runs"
    return None


def at_rest(state: State, rules: Rules) -> str | None:
    """Return what is wrong with a state in which nobody has anything left to do."""
    if state.start == "runs":
        return None
    if "running" in state.drivers:
        if state.start == "waits":
            return "dead end: a start waits for a driver that runs for ever"
        waits = "waiting" in state.drivers
        return "dead end: a surplus driver waits for ever" if waits else None
    if "none" not in state.drivers:
        return None  # the model has no more drivers to start
    return "dead end: no driver runs, and nobody starts one"


def explore(rules: Rules, start: State = START, *, rests: bool = True) -> tuple[int, Found | None]:
    """Return how many states can be reached, and the way to the first violation; ``rests``: or dead end."""

    def wrong(state: State, labels: Sequence[str]) -> str | None:
        luck = ("kill", "cut", "outage", "told")
        at_work = any(not any(word in label for word in luck) for label in labels)
        return violation(state, rules) or (at_rest(state, rules) if rests and not at_work else None)

    return search([start], lambda state: successors(state, rules), wrong)
