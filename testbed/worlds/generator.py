"""Random worlds: cheap to make, small, and hostile."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Literal

from testbed.worlds.world import ABORTED, GONE, MARKER, OTHERS, RECORD, Entry, World

if TYPE_CHECKING:
    from collections.abc import Sequence

_LATE_MS = 1 << 18
"""When mirrors write: markers on the target carry that time."""
_FOREIGN = 1 << 30
"""Values of others' records from here on equal none of the source's."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is drawn first: it decides how the rest is drawn."""

    dated: bool
    sole_writer: bool
    keyed: bool
    in_sync: bool


def a_world(seed: int) -> World:
    """Return the world of a seed."""
    rng = Random(seed)  # noqa: S311 - nothing secret
    chance = rng.random
    kind = _Kind(chance() < 0.65, chance() < 0.25, chance() < 0.15, chance() < 0.75)
    source = _a_source(rng, kind)
    short = not kind.in_sync and chance() < 0.4
    target = _a_target(rng, source, kind, stopped_short=short)
    compacted = kind.keyed and chance() < 0.8
    source_compacted = kind.keyed and chance() < 0.4
    if compacted:
        target = _clean(rng, target)
    position = rng.randint(0, len(source))
    source_start = rng.choice((0, 0, 0, position, rng.randint(0, position)))
    if source_compacted:
        source = _clean(rng, source)
    return World(
        source=tuple(source),
        target=tuple(target),
        position=position,
        source_start=source_start,
        target_start=rng.randint(0, len(target)) if chance() < 0.25 else 0,
        dated=kind.dated,
        sole_writer=kind.sole_writer,
        in_sync=kind.in_sync,
        stopped_short=short,
        compacted=compacted,
        source_compacted=source_compacted,
        context=rng.choice((4, 8, 8, 12, 32)),
        most_context=rng.choice((16, 40, 8192, 8192)),
        longest=rng.choice((24, 1 << 20, 1 << 20, 1 << 20)),
        share=rng.choice((0, 16, 1 << 20, 1 << 20, 1 << 20)),
        deletions=_deletions(rng, len(source), len(target)) if chance() < 0.06 else (),
    )


def _deletions(
    rng: Random, source: int, target: int
) -> tuple[tuple[int, Literal["source", "target"], int], ...]:
    if rng.random() < 0.5:
        return ((rng.randint(0, 4), "source", rng.randint(0, source)),)
    return ((rng.randint(0, 4), "target", rng.randint(0, target)),)


def _a_source(rng: Random, kind: _Kind) -> list[Entry]:
    size = int(rng.random() ** 1.4 * 64)
    values = _values(rng, size)
    burst = rng.choice((1, 1, 1, 3, 8, 1 << 20))
    jitter = rng.random() < 0.15
    transactions = rng.random() < 0.2
    log: list[Entry] = []
    aborted = False
    for i, value in enumerate(values):
        now = 1000 + i // burst + (rng.randint(-6, 6) if jitter else 0)
        key = rng.randint(1, 6) if kind.keyed else 0
        if transactions and rng.random() < 0.2:
            log.append((MARKER, 0, now, 0, False, len(log)))
            aborted = rng.random() < 0.3
        log.append(
            (ABORTED if aborted else RECORD, value, now, key, kind.keyed and rng.random() < 0.15, len(log))
        )
    if transactions:
        log.append((MARKER, 0, 1000 + size, 0, False, len(log)))
    return log


def _values(rng: Random, size: int) -> list[int]:
    kind = rng.random()
    if kind < 0.5:
        return list(range(1, size + 1))
    if kind < 0.65:  # one after the other, again and again
        period = rng.randint(1, 12)
        return [i % period + 1 for i in range(size)]
    if kind < 0.8:  # few values, and some that stand once
        few = rng.randint(1, 4)
        return [rng.randint(1, few) if rng.random() < 0.6 else 100 + i for i in range(size)]
    many = rng.randint(2, 60)
    return [rng.randint(1, many) for _ in range(size)]


def _a_target(rng: Random, source: Sequence[Entry], kind: _Kind, *, stopped_short: bool) -> list[Entry]:
    uncommitted = rng.random() < 0.3
    seen = [entry for entry in source if entry[0] == RECORD or (uncommitted and entry[0] == ABORTED)]
    copies = [(RECORD, value, now, key, tomb, at) for _, value, now, key, tomb, at in seen]
    end = len(copies)
    if stopped_short and end:
        end -= rng.randint(1, min(end, 12))
    passes = _passes(rng, copies, end)
    if rng.random() < 0.1 and len(passes) > 1:
        passes = [_interleaved(rng, passes), *passes[2:]]
    log: list[Entry] = []
    others = not kind.sole_writer and rng.random() < 0.65
    for one in passes:
        log += one
        if others and rng.random() < 0.5:
            log += _others(rng, copies, len(log))
    for _ in range(rng.choice((0, 0, 1, 2)) if others else 0):
        at = rng.randint(0, len(log))
        log[at:at] = _others(rng, copies, at)
    if rng.random() < 0.2:
        for _ in range(rng.randint(1, 6)):
            log.insert(rng.randint(0, len(log)), (MARKER, 0, _LATE_MS, 0, False, OTHERS))
    return log


def _passes(rng: Random, copies: Sequence[Entry], end: int) -> list[list[Entry]]:
    """Let the mirror come to the end in some passes, each of which may lack records."""
    chance = rng.random
    count = rng.choice((1, 1, 2, 2, 3))
    at = rng.randint(0, end) if chance() < 0.1 else 0
    passes = []
    for number in range(count):
        to = end if number == count - 1 else rng.randint(at, end)
        one = list(copies[at:to])
        if chance() < 0.3 and one:
            if chance() < 0.5:
                for _ in range(rng.randint(1, 3)):
                    if one:
                        del one[rng.randrange(len(one))]
            else:
                low = rng.randrange(len(one))
                del one[low : low + rng.randint(1, 20)]
        passes.append(one)
        far = chance()
        if far < 0.1:
            at = rng.randint(to, end)  # what it had not mirrored was deleted, say
        elif far < 0.4:
            at = rng.randint(0, to)
        else:
            at = max(0, to - rng.randint(0, 12))
    return passes


def _interleaved(rng: Random, passes: list[list[Entry]]) -> list[Entry]:
    """Let the first two passes run at once."""
    one, other = (list(reversed(entries)) for entries in passes[:2])
    merged = []
    while one or other:
        merged.append((one if not other or (one and rng.random() < 0.5) else other).pop())
    return merged


def _others(rng: Random, copies: Sequence[Entry], at: int) -> list[Entry]:
    """Return what the target's own producers write: mostly new, sometimes equal to what is mirrored."""
    found: list[Entry] = []
    equal = rng.random() < 0.25 and copies
    low = rng.randrange(len(copies)) if equal else 0
    for i in range(rng.choice((1, 1, 2, 4))):
        if equal:
            _, value, now, key, tomb, _ = copies[min(low + i, len(copies) - 1)]
            found.append((RECORD, value, now, key, tomb, OTHERS))
        else:
            value = _FOREIGN + rng.randrange(1 << 10)
            now = 1000 + rng.randint(0, 80)
            found.append((RECORD, value, now, 100 + i if copies and copies[0][3] else 0, False, OTHERS))
    return found


def _clean(rng: Random, log: list[Entry]) -> list[Entry]:
    """Remove older versions of keys, and deletions with what they delete, up to somewhere."""
    to, share = rng.randint(0, len(log)), rng.choice((0.3, 1.0))
    newest = {entry[3]: at for at, entry in enumerate(log) if entry[3] and entry[0] == RECORD}
    cleaned = list(log)
    for at, entry in enumerate(log[:to]):
        if entry[0] == RECORD and entry[3] and newest[entry[3]] > at and rng.random() < share:
            cleaned[at] = (GONE, *entry[1:])
    if rng.random() < 0.5:
        live = {entry[3] for entry in cleaned if entry[0] == RECORD and not entry[4]}
        for at, entry in enumerate(cleaned[:to]):
            if entry[4] and entry[0] == RECORD and entry[3] not in live:
                cleaned[at] = (GONE, *entry[1:])
    return cleaned
