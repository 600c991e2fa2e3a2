"""Make a world that is answered wrongly as small as it can be, and write it down as a test. Pure."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from testbed.worlds.judge import wrong
from testbed.worlds.proof import prove
from testbed.worlds.world import GONE, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.kafka.translation.alignment import Side

_PLAIN = World(source=(), target=(), position=0)
_CONTEXTS = (4, 8, 12)


def fault(world: World) -> str | None:
    """Return what is wrong with the answer about a world; an error of the proof is wrong, too."""
    try:
        return wrong(world, prove(world))
    except Exception as error:  # noqa: BLE001 - whatever it is, its seed must be told
        return f"{type(error).__name__}: {error}"


def kind_of(found: str | None) -> str | None:
    """Return a fault without its numbers."""
    return None if found is None else re.sub(r"\d+", "n", found)


def shrunk(world: World) -> World:
    """Return the smallest world found that has the same fault."""
    kind = kind_of(fault(world))
    again = True
    while again:
        again = False
        for smaller in _smaller(world):
            if kind_of(fault(smaller)) == kind:
                world, again = smaller, True
                break
    return world


def _smaller(world: World) -> Iterator[World]:
    """Yield worlds with less in them, the smallest first."""
    for size in (16, 4, 1):
        for low in range(0, len(world.target), size):
            yield _without_target(world, low, min(low + size, len(world.target)))
        for low in range(0, len(world.source), size):
            yield _without_source(world, low, min(low + size, len(world.source)))
    for name in ("deletions", "longest", "share", "most_context", "source_start", "target_start"):
        plain = getattr(_PLAIN, name)
        if getattr(world, name) != plain:
            yield replace(world, **{name: plain})
    for context in _CONTEXTS:
        if context < world.context:
            yield replace(world, context=context)


def _without_target(world: World, low: int, high: int) -> World:
    return replace(
        world,
        target=world.target[:low] + world.target[high:],
        target_start=_moved(world.target_start, low, high),
        deletions=_moved_deletions(world, "target", low, high),
    )


def _without_source(world: World, low: int, high: int) -> World:
    """Leave out source records and their copies; what follows moves up."""
    source = world.source[:low] + world.source[high:]
    target = [entry for entry in world.target if not low <= entry[5] < high]
    return replace(
        world,
        source=tuple((*entry[:5], at) for at, entry in enumerate(source)),
        target=tuple((*entry[:5], _moved(entry[5], low, high)) for entry in target),
        position=_moved(world.position, low, high),
        source_start=_moved(world.source_start, low, high),
        target_start=min(world.target_start, len(target)),
        deletions=_moved_deletions(world, "source", low, high),
    )


def _moved_deletions(world: World, side: Side, low: int, high: int) -> tuple[tuple[int, Side, int], ...]:
    return tuple(
        (read, log, _moved(start, low, high) if log == side else start)
        for read, log, start in world.deletions
    )


def _moved(offset: int, low: int, high: int) -> int:
    return offset if offset < low else max(low, offset - (high - low))


def as_test(world: World, name: str, found: str | None) -> str:
    """Return the world as a test that fails until the fault is mended."""
    settings = [
        f"        {field.name}={getattr(world, field.name)!r},\n"
        for field in fields(world)
        if field.name not in ("source", "target", "position")
        and getattr(world, field.name) != getattr(_PLAIN, field.name)
    ]
    logs = "".join(
        f"        {name}=(\n{''.join(f'            {entry!r},' + chr(10) for entry in log)}        ),\n"
        for name, log in (("source", world.source), ("target", world.target))
    )
    gone = f"  # {GONE}: compacted away" if any(entry[0] == GONE for entry in world.target) else ""
    return (
        f"def test_world_{name}():  # {found}{gone}\n"
        f"    world = World(\n{logs}        position={world.position},\n{''.join(settings)}    )\n"
        "    assert wrong(world, prove(world)) is None\n"
    )
