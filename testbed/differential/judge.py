"""Compares what a query wrote under the agent with what it wrote plainly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from testbed.differential.outputs import Written
    from testbed.differential.spec import QuerySpec

    RowOf = tuple[tuple[str, object], ...]

_SHOWN = 4
_VALUES = frozenset(["n", "s"])
"""Columns that are no part of a keyed row's key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Rows that may stand in the output more often than plainly."""

    exactly: Counter[RowOf] = field(default_factory=Counter)
    """A rewind's: once more each, no more and no less."""
    any_known: bool = False
    """The sink promises each row at least once, and something happened that makes Spark write one again."""


NOTHING = Allowed()


def judge(
    query: QuerySpec, plain: Sequence[Written], agent: Sequence[Written], allowed: Allowed = NOTHING
) -> list[str]:
    """Return what is wrong, a short line each; nothing if the outputs are equal."""
    if query.source == "rate":
        return _judge_numbers(agent)
    if query.is_keyed:
        return _judge_last(_last(plain), _last(agent))
    return _judge_rows(Counter(w.row for w in plain), Counter(w.row for w in agent), allowed)


def _judge_numbers(agent: Sequence[Written]) -> list[str]:
    """A rate source numbers its rows: each stands there once, up to some number."""
    found = Counter(int(str(dict(written.row)["id"])) for written in agent)
    wrong = []
    if missing := [number for number in range(max(found, default=-1)) if number not in found]:
        wrong.append(f"lost {_show(missing)}")
    if twice := [number for number, count in found.items() if count > 1]:
        wrong.append(f"doubled {_show(twice)}")
    return wrong if found else ["no row was written"]


def _last(written: Iterable[Written]) -> dict[RowOf, RowOf]:
    """Return the row of each key that counts most."""
    last: dict[RowOf, RowOf] = {}
    for each in written:
        key = tuple(pair for pair in each.row if pair[0] not in _VALUES)
        if key not in last or _count(last[key]) <= _count(each.row):
            last[key] = each.row
    return last


def _count(row: RowOf) -> int:
    return int(str(dict(row)["n"]))


def _judge_last(plain: Mapping[RowOf, RowOf], agent: Mapping[RowOf, RowOf]) -> list[str]:
    return [
        f"{dict(key)}: plainly {_values(plain.get(key))}, under the agent {_values(agent.get(key))}"
        for key in sorted(plain.keys() | agent.keys(), key=str)
        if plain.get(key) != agent.get(key)
    ]


def _values(row: RowOf | None) -> dict[str, object] | None:
    return None if row is None else {name: value for name, value in row if name in _VALUES}


def _judge_rows(plain: Counter[RowOf], agent: Counter[RowOf], allowed: Allowed) -> list[str]:
    wrong = []
    wanted = plain + allowed.exactly
    if missing := wanted - agent:
        wrong.append(f"lost {missing.total()}: {_show([dict(row) for row in missing])}")
    surplus = agent - wanted
    if allowed.any_known:
        surplus = Counter({row: count for row, count in surplus.items() if row not in plain})
    if surplus:
        wrong.append(f"too many {surplus.total()}: {_show([dict(row) for row in surplus])}")
    return wrong


def _show(found: Sequence[object]) -> str:
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(str(each) for each in found[:_SHOWN]) + more
