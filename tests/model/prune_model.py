"""A small explicit-state model of a take, a restore, a person's pin and two prunes of one job's blobs.

T takes a savepoint X, whose one file has the content of blob ``b``, or of a part of it: ``b`` may be a pack,
of which M names one range and X another, and T may as well pack anew what it could find there. R restores a
savepoint M, which needs ``b``; N holds M, as a pin or any other reference does; the prunes P and Q want M
gone unless it is held, and every blob without a savepoint. Everybody may sleep before any step, for any time,
and so be taken for dead; whoever never wakes is a crash. The delete of M's manifest may be refused (403), or
get no answer and take effect whenever the network likes. Time is not in the model: nothing here may rest on
how long a lease is. Each rule names the code that keeps it; taking one out must break something.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, NamedTuple

from tests.model.search import search

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.search import Found


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the protocol demands; True keeps the rule."""

    intent_before_look: bool = True
    """A take lists the blobs under its intent (``savepoint.capture.take``, ``intents.hold_intent``)."""
    withdraw_from_held_slot: bool = True
    """Whoever finds the slot held after writing an intent withdraws (``intents._declare``)."""
    intents_after_slot: bool = True
    """A prune reads the intents once it has the slot (``garbage_collection._acquire``)."""
    spend_id_of_given_up_take: bool = True
    """Giving up an intent tombstones the savepoint's id first (``intents.give_up``)."""
    manifests_after_giving_up: bool = True
    """What savepoints need is read after the intents were judged (``prune.prune``)."""
    condemn_before_delete: bool = True
    """What is deleted is written down before (``garbage_collection.HeldPrune``)."""
    confirm_after_condemning: bool = True
    """The slot is still held after that was written (``garbage_collection.HeldPrune``)."""
    avoid_condemned: bool = True
    """A take relies on no blob that somebody may still delete (``repository.avoid``)."""
    pack_needed_by_any_range: bool = True
    """A pack stays while a savepoint names one range of it, not only those of M (``manifest.blobs``)."""
    manifest_before_blobs: bool = True
    """A savepoint's manifest is deleted before its blobs (``garbage_collection.HeldPrune``)."""
    spend_condemned_savepoints: bool = True
    """Whoever takes over an expired slot ends what its holder was disposing of (``prune_slot.take_slot``)."""
    pass_on_condemned: bool = True
    """So does the next one, if that one was given up before it had (``PruneSlot.in_force``)."""
    lists_end_with_the_slot: bool = True
    """No list of a prune that gave the slot back counts: its savepoints are decided anew (the same)."""
    keep_slot_in_doubt: bool = True
    """A prune whose delete of a manifest got no answer does not give the slot back (``HeldPrune``)."""
    reference_under_intent: bool = True
    """Who holds a savepoint looks for it, and writes that, under an intent (``references.hold``)."""
    confirm_reference: bool = True
    """And then finds that the intent was not given up meanwhile (``references.hold``)."""
    references_after_giving_up: bool = True
    """What is held is read after the intents were judged (``prune.prune``)."""
    free_slot_if_own: bool = True
    """The slot is given back by a replace that fails if another holds it (``leases.Renewed``)."""


RULES = tuple(field.name for field in fields(Rules))
NOTHING: frozenset[str] = frozenset()
DONE = 99

Who = Literal["P", "Q"]


class Prune(NamedTuple):
    """One prune: where it is, and what is in its head and in its list of the condemned."""

    step: int = 0
    tries: int = 0  # left, after this one was given up
    takes_over: bool = False
    dooms_m: bool = False
    needed: frozenset[str] = NOTHING
    held_m: bool = False
    doomed: frozenset[str] = NOTHING
    listed_m: bool = False
    listed: frozenset[str] = NOTHING
    in_flight: bool = False  # the delete of M's manifest, which got no answer
    left_m: bool = False  # M is in a list that an earlier process left
    left: frozenset[str] = NOTHING


class State(NamedTuple):
    """Everything in the store and in the processes' heads."""

    blobs: frozenset[str]
    m: bool  # the manifest of M, which needs b
    x: str | None = None  # the blob that the manifest of X needs
    x_tombstoned: bool = False
    slot: Who | None = None
    in_force: frozenset[Who] = frozenset()  # whose lists the slot's holder has to end
    t_intent: bool = False
    r_intent: bool = False
    t: int = 0
    t_avoids: frozenset[str] = NOTHING
    t_key: str = ""
    t_uploads: bool = False
    r: int = 0
    r_lost: bool = False
    n_intent: bool = False
    n: int = 0
    held: bool = False  # N's reference is in the store
    promised: bool = False  # N was told that M stays
    p: Prune = Prune()
    q: Prune = Prune()


Step = tuple[str, State]


def successors(state: State, rules: Rules) -> Iterator[Step]:
    """Yield every step that somebody can take."""
    yield from _take(state, rules)
    yield from _restore(state, rules)
    yield from _hold(state, rules)
    yield from _prune(state, rules, "P")
    yield from _prune(state, rules, "Q")


_TAKE = ("declare", "check", "read lists", "look", "upload", "publish", "withdraw")
_TAKE_TOO_LATE = ("read lists", "look", "declare", "check", "upload", "publish", "withdraw")


def _take(state: State, rules: Rules) -> Iterator[Step]:
    order = _TAKE if rules.intent_before_look else _TAKE_TOO_LATE
    if state.t < len(order):
        step, after = order[state.t], state._replace(t=state.t + 1)
        yield f"T: {step}", _take_step(step, state, after, rules, again=order.index("declare"))
        if step == "look" and "b again" not in state.t_avoids:
            yield "T: packs anew", after._replace(t_key="b again", t_uploads="b again" not in state.blobs)


def _take_step(step: str, state: State, after: State, rules: Rules, *, again: int) -> State:
    match step:
        case "declare":
            return after._replace(t_intent=True)
        case "check" if state.slot is not None and rules.withdraw_from_held_slot:
            return after._replace(t=again, t_intent=False)
        case "read lists" if rules.avoid_condemned:
            lists = (state.p.listed, state.q.listed, state.p.left, state.q.left)
            return after._replace(t_avoids=NOTHING.union(*lists))
        case "look":
            key = "b" if "b" not in state.t_avoids else "b again"
            return after._replace(t_key=key, t_uploads=key not in state.blobs)
        case "upload" if state.t_uploads:
            return after._replace(blobs=state.blobs | {state.t_key})
        case "publish" if state.x_tombstoned:
            return after._replace(t=DONE, t_intent=False)
        case "publish":
            return after._replace(x=state.t_key)
        case "withdraw":
            return after._replace(t_intent=False)
    return after


def _restore(state: State, rules: Rules) -> Iterator[Step]:
    match state.r:
        case 0:
            yield "R declares", state._replace(r=1, r_intent=True)
        case 1 if state.slot is not None and rules.withdraw_from_held_slot:
            yield "R withdraws", state._replace(r=0, r_intent=False)
        case 1:
            yield "R checks", state._replace(r=2)
        case 2:
            yield "R reads the manifest", state._replace(r=3 if state.m else 4)
        case 3:
            lost = state.r_intent and "b" not in state.blobs
            yield "R reads the blob", state._replace(r=4, r_lost=lost)
        case 4:
            yield "R withdraws its intent", state._replace(r=5, r_intent=False)


def _hold(state: State, rules: Rules) -> Iterator[Step]:
    match state.n:
        case 0:
            yield "N declares", state._replace(n=1, n_intent=rules.reference_under_intent)
        case 1 if state.slot is not None and rules.reference_under_intent:
            yield "N withdraws", state._replace(n=0, n_intent=False)
        case 1:
            yield "N checks", state._replace(n=2)
        case 2:
            yield "N reads the manifest", state._replace(n=3 if state.m else 5)
        case 3:
            yield "N writes its reference", state._replace(n=4, held=True)
        case 4:
            confirmed = state.n_intent or not (rules.confirm_reference and rules.reference_under_intent)
            yield "N confirms", state._replace(n=5, promised=confirmed)
        case 5:
            yield "N withdraws its intent", state._replace(n=6, n_intent=False)


def _prune(state: State, rules: Rules, who: Who) -> Iterator[Step]:
    """Steps 0-3: get the slot; 4-6: decide; 7-9: announce; 10-12: delete; 13-14: end."""
    own = state.p if who == "P" else state.q
    if own.in_flight:
        yield f"the delete of {who} arrives", _with(state, who, own._replace(in_flight=False), m=False)
    if own.step < 4:
        yield from _prune_begins(state, rules, who, own)
    elif own.step < 10:
        yield from _prune_decides(state, rules, who, own)
    elif own.step < DONE:
        yield from _prune_deletes(state, rules, who, own)


def _with(state: State, who: Who, own: Prune, **changes: object) -> State:
    key = "p" if who == "P" else "q"
    return state._replace(**{key: own, **changes})


def _prune_begins(state: State, rules: Rules, who: Who, own: Prune) -> Iterator[Step]:
    match own.step:
        case 0 if not rules.intents_after_slot and (state.t_intent or state.r_intent or state.n_intent):
            return  # looks before it has the slot, and waits
        case 0 if not rules.intents_after_slot:
            yield f"{who} reads the intents", _with(state, who, own._replace(step=1))
        case 0 | 1:
            yield f"{who} takes the slot", _takes_slot(state, rules, who, own)
        case 2 if own.takes_over and rules.spend_condemned_savepoints:
            ended = _with(state, who, own._replace(step=3), in_force=frozenset())
            gone = _is_being_disposed_of(state, rules)
            yield f"{who} ends what was being disposed of", ended._replace(m=state.m and not gone)
            if own.tries:  # it dies instead; another process of the same name comes
                yield f"{who} dies", _with(state, who, _again(own))
        case 2:
            yield f"{who} goes on", _with(state, who, own._replace(step=3))
        case 3:
            yield from _judge_intents(state, rules, who, own)
            if own.takes_over:  # as a take does that finds the slot expired
                yield f"{who} only wanted it free", _with(state, who, own._replace(step=13))


def _takes_slot(state: State, rules: Rules, who: Who, own: Prune) -> State:
    over = own._replace(step=2, takes_over=state.slot is not None)
    if not rules.manifests_after_giving_up:
        over = over._replace(needed=_needed(state))
    if not rules.references_after_giving_up:
        over = over._replace(held_m=state.held)
    before = frozenset({state.slot} if state.slot is not None else ())
    in_force = before | (state.in_force if rules.pass_on_condemned else frozenset())
    return _with(state, who, over, slot=who, in_force=in_force)


def _judge_intents(state: State, rules: Rules, who: Who, own: Prune) -> Iterator[Step]:
    """Every intent may look expired: its holder sleeps. Spending and removing are two steps."""
    if not rules.intents_after_slot:
        yield f"{who} goes on", _with(state, who, own._replace(step=4))
    elif state.t_intent and rules.spend_id_of_given_up_take and not state.x_tombstoned and state.x is None:
        yield f"{who} tombstones X", state._replace(x_tombstoned=True)
    elif state.t_intent:
        yield f"{who} gives T up", state._replace(t_intent=False)
    elif state.r_intent:
        yield f"{who} gives R up", state._replace(r_intent=False)
    elif state.n_intent:
        yield f"{who} gives N up", state._replace(n_intent=False)
    else:
        yield f"{who} finds no intent", _with(state, who, own._replace(step=4))


def _needed(state: State) -> frozenset[str]:
    return NOTHING if state.x is None else frozenset({state.x})


def _prune_decides(state: State, rules: Rules, who: Who, own: Prune) -> Iterator[Step]:
    match own.step:
        case 4:
            needed = _needed(state) if rules.manifests_after_giving_up else own.needed
            held = state.held if rules.references_after_giving_up else own.held_m
            read = own._replace(step=5, needed=needed, dooms_m=state.m and not held)
            yield f"{who} reads the manifests", _with(state, who, read)
        case 5:
            kept = frozenset({"b"}) if state.m and not own.dooms_m else NOTHING
            needed = own.needed if rules.pack_needed_by_any_range else own.needed - {"b"}
            listed = own._replace(step=6, doomed=state.blobs - needed - kept)
            yield f"{who} lists the blobs", _with(state, who, listed)
        case 6:
            after = own._replace(step=7)
            if rules.condemn_before_delete:
                after = after._replace(listed=own.doomed, listed_m=own.dooms_m)
            yield f"{who} condemns", _with(state, who, after)
        case 7 if state.slot != who and rules.confirm_after_condemning:
            after = _ended(own)
            yield f"{who} was given up", _with(state, who, _again(after) if own.tries else after)
        case 7:
            yield f"{who} confirms", _with(state, who, own._replace(step=10))


def _prune_deletes(state: State, rules: Rules, who: Who, own: Prune) -> Iterator[Step]:
    first, second = ("m", "blobs") if rules.manifest_before_blobs else ("blobs", "m")
    match own.step:
        case 10 | 11:
            what = first if own.step == 10 else second
            if what == "m":
                gone = _with(state, who, own._replace(step=own.step + 1), m=state.m and not own.dooms_m)
                yield f"{who} deletes the manifest", gone
                if own.dooms_m and rules.manifest_before_blobs:
                    yield from _delete_fails(state, rules, who, own)
            elif own.doomed:
                blob = min(own.doomed)
                left = own._replace(doomed=own.doomed - {blob})
                yield f"{who} deletes {blob}", _with(state, who, left, blobs=state.blobs - {blob})
            else:
                yield f"{who} has deleted", _with(state, who, own._replace(step=own.step + 1))
        case 12:
            done = own._replace(step=13, listed=NOTHING, listed_m=False)
            yield f"{who} removes its list", _with(state, who, done)
        case 13:
            own_slot = state.slot == who or not rules.free_slot_if_own
            slot, in_force = (None, frozenset()) if own_slot else (state.slot, state.in_force)
            after = _again(own) if own.tries else own._replace(step=DONE)
            yield f"{who} frees the slot", _with(state, who, after, slot=slot, in_force=in_force)


def _delete_fails(state: State, rules: Rules, who: Who, own: Prune) -> Iterator[Step]:
    """It ends with its list left behind; whether M is gone it knows only if it was told."""
    yield f"{who} may not delete the manifest", _with(state, who, own._replace(step=13))
    step = DONE if rules.keep_slot_in_doubt else 13
    yield f"{who} gets no answer", _with(state, who, own._replace(step=step, in_flight=True))


def _again(own: Prune) -> Prune:
    """Return the next process of that name; what the one before has left in the store stays."""
    left_m, left = own.left_m or own.listed_m, own.left | own.listed
    return Prune(tries=own.tries - 1, in_flight=own.in_flight, left_m=left_m, left=left)


def _is_being_disposed_of(state: State, rules: Rules) -> bool:
    if not rules.lists_end_with_the_slot and (state.p.left_m or state.q.left_m):
        return True
    lists = state.in_force if rules.lists_end_with_the_slot else frozenset({"P", "Q"})
    return ("P" in lists and state.p.listed_m) or ("Q" in lists and state.q.listed_m)


def _ended(own: Prune) -> Prune:
    return own._replace(step=DONE, listed_m=False, listed=NOTHING)


def violation(state: State) -> str | None:
    """Return what must never be, in any state."""
    if state.x is not None and state.x not in state.blobs:
        return "savepoint X exists without its blob"
    if state.m and "b" not in state.blobs:
        return "savepoint M exists without its blob"
    if state.r_lost:
        return "a restore lost its blob while its intent stood"
    if state.promised and not state.m:
        return "savepoint M is gone although it was held, and nobody decided anew"
    return None


def explore(rules: Rules) -> tuple[int, Found | None]:
    """Return how many states can be reached, and the way to the first violation.

    The take, the restore and the pin meet only in the prunes, so each is explored without the others.
    """
    b = frozenset({"b"})
    begins = [
        State(blobs=b, m=True, r=DONE, n=DONE),
        State(blobs=b, m=False, r=DONE, n=DONE),
        State(blobs=b, m=True, t=DONE, n=DONE, q=Prune(tries=1)),
        State(blobs=b, m=True, t=DONE, r=DONE, q=Prune(tries=1)),
    ]
    return search(begins, lambda state: successors(state, rules), lambda state, _: violation(state))
