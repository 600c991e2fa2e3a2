"""Compares the states that a script leaves plainly and under the agent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from testbed.differential.plain import read_states
from testbed.differential.spec import STATEFUL

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from testbed.differential.spec import QuerySpec, ScriptSpec
    from testbed.differential.warm_jvm import WarmJvm

_SHOWN = 3


def pairs(spec: ScriptSpec, plain: Path, agent: Mapping[str, Path]) -> dict[int, tuple[Path, Path]]:
    """Return by the place of a query its two checkpoints, where both are known and ended at one watermark.

    A watermark that lags in one of them says only that its last batch had no rows: the outputs tell more.
    """
    found = {}
    for place, query in enumerate(spec.queries):
        if query.work not in STATEFUL:
            continue
        own = plain / (str(query.name) if spec.checkpoint == "conf" else str(place))
        other = agent.get(str(query.name)) if query.name is not None else _only(spec, agent)
        if other is None or not own.is_dir():
            continue
        if (watermark := _watermark(own)) is not None and watermark == _watermark(other):
            found[place] = (own, other)
    return found


def _only(spec: ScriptSpec, agent: Mapping[str, Path]) -> Path | None:
    return next(iter(agent.values())) if len(spec.queries) == len(agent) == 1 else None


def _watermark(checkpoint: Path) -> int | None:
    """Return the watermark of the last batch; None if there is none, or it is not committed."""
    batches, done = (
        {int(path.name) for path in (checkpoint / log).glob("*") if path.name.isdigit()}
        for log in ("offsets", "commits")
    )
    if not batches or max(batches) not in done:
        return None
    lines = (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()
    return int(json.loads(lines[1])["batchWatermarkMs"])


def judge_states(
    spec: ScriptSpec, jvm: WarmJvm, found: Mapping[int, tuple[Path, Path]], folder: Path
) -> list[str]:
    """Return what is wrong, a line for each store."""
    if not found:
        return []
    answers = read_states(jvm, [path for pair in found.values() for path in pair], folder)
    wrong = []
    for number, place in enumerate(found):
        own, other = answers[2 * number], answers[2 * number + 1]
        for store in sorted((own or {}).keys() | (other or {}).keys()):
            wrong += _differences(place, spec.queries[place], store, own or {}, other or {})
    return wrong


def _differences(
    place: int,
    query: QuerySpec,
    store: str,
    own: Mapping[str, list[str] | None],
    other: Mapping[str, list[str] | None],
) -> list[str]:
    plain, agent = own.get(store, []), other.get(store, [])
    if plain == agent or plain is None:
        return []
    if agent is None:
        return [f"query {place}: state of {query.work}, {store}: only under the agent it cannot be read"]
    only = [row for row in plain if row not in agent][:_SHOWN]
    more = [row for row in agent if row not in plain][:_SHOWN]
    counts = f"{len(plain)} and {len(agent)} rows"
    what = f"query {place}: state of {query.work}, {store}: {counts}"
    return [f"{what}; only plainly {only}, only under the agent {more}"]
