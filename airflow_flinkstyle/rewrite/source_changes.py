"""Changes of a query's sources: positions replaced, sources added, removed, reordered, renamed. Pure.

Spark knows a source by its place in the query (offset log v1, or v2 without names) or by its name (v2). Here
a source has its name in the savepoint; only an added one has the name that it will have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.python_versions import assert_never
from airflow_flinkstyle.rewrite.errors import SOURCE_CHANGE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition

_NAME = re.compile(r"[A-Za-z0-9_]+")  # what Spark's .name() takes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacePosition:
    """A source drops its position and is elsewhere: on another cluster, another topic, other offsets."""

    query: str
    source: str
    position: KafkaPosition
    """Made by ``apply.checked_position``."""

    def __str__(self) -> str:
        """Return what is changed, and to what."""
        return f"source {self.source} drops its position and begins at {_listed_offsets(self.position)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddSource:
    """A source that the query did not read."""

    query: str
    source: str
    """Its name, or its place among the sources the query is going to have, from 0."""
    position: KafkaPosition

    def __str__(self) -> str:
        """Return what is added, and where it begins."""
        return f"source {self.source} is added and begins at {_listed_offsets(self.position)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveSource:
    """A source that the query no longer reads; what state holds of it stays."""

    query: str
    source: str

    def __str__(self) -> str:
        """Return what is removed."""
        return f"source {self.source} is no longer read"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReorderSources:
    """The sources that stay stand in another order in the script."""

    query: str
    order: tuple[str, ...]
    """Every source that stays, as the savepoint calls it, in the script's new order."""

    def __str__(self) -> str:
        """Return the new order."""
        return f"the sources that stay are read in the order {', '.join(self.order)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameSources:
    """The sources get other names: names instead of places, places again, or different names.

    Spark goes by names in an offset log v2 (4.2) if the script gives each source one, and does not convert
    the log of a query that had none.
    """

    query: str
    names: Mapping[str, str]
    """Each source, as the savepoint calls it -> its name in the new script; or its place there, from 0, for
    a script that names none."""

    def __str__(self) -> str:
        """Return what each is called."""
        listed = ", ".join(f"{old} is {new}" for old, new in self.names.items())
        return f"the sources are called otherwise: {listed}"


SourceChange = ReplacePosition | AddSource | RemoveSource | ReorderSources | RenameSources


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSource:
    """One source that the query is going to have."""

    source: str
    """Its place or name from now on."""
    was: str | None
    """Its place or name in the savepoint; None if it is new."""
    position: KafkaPosition | None
    """Where it begins; None if it continues where it was."""


def new_layout(query: str, log: OffsetLog, changes: Sequence[SourceChange]) -> tuple[PlannedSource, ...]:
    """Return the sources a query is going to have; the order of the changes does not matter.

    Removed sources go first, those that stay are ordered, and added ones take their places among them.

    Raises:
        FlinkstyleError: ``SOURCE_CHANGE`` if a source is unknown, changed twice, or out of place, or none
            is left.
    """
    _require_known(query, log, changes)
    if (renamed := renaming(query, log, changes)) is not None:
        return tuple(PlannedSource(source=new, was=was, position=None) for was, new in renamed.names.items())
    removed = {change.source for change in changes if isinstance(change, RemoveSource)}
    placed = {change.source: change.position for change in changes if isinstance(change, ReplacePosition)}
    order = _in_order(query, log, changes, [source for source in _listed(log) if source not in removed])
    slots = [PlannedSource(source=was, was=was, position=placed.get(was)) for was in order]
    added = [change for change in changes if isinstance(change, AddSource)]
    slots = _with_added(query, slots, added, by_position=log.by_position)
    if not slots:
        raise SOURCE_CHANGE.error(
            where=query, expected="at least one source to be left", found="every one of them removed"
        )
    if not log.by_position:
        return tuple(slots)
    return tuple(
        PlannedSource(source=str(place), was=slot.was, position=slot.position)
        for place, slot in enumerate(slots)
    )


def renaming(query: str, log: OffsetLog, changes: Sequence[SourceChange]) -> RenameSources | None:
    """Return the change that renames the sources; None without one.

    Raises:
        FlinkstyleError: ``SOURCE_CHANGE`` if it leaves a source out, comes with another change, or gives
            invalid names.
    """
    found = next((change for change in changes if isinstance(change, RenameSources)), None)
    if found is None:
        return None
    if len(changes) > 1:
        what = "names of sources, and nothing else of the query at once"
        raise SOURCE_CHANGE.error(where=query, expected=what, found=f"{len(changes)} changes")
    if found.names.keys() != log.sources.keys():
        expected = f"a name for each of its sources, {', '.join(_listed(log))}"
        raise SOURCE_CHANGE.error(where=query, expected=expected, found=", ".join(found.names) or "none")
    new = list(found.names.values())
    are_places = sorted(new) == sorted(map(str, range(len(new))))
    are_names = len(set(new)) == len(new) and all(_NAME.fullmatch(one) and not one.isdigit() for one in new)
    if not (are_names or (are_places and not log.by_position)):
        places = f"back to the places 0 to {len(new) - 1}"
        expected = f"different names of letters, digits and underscores, or {places}"
        raise SOURCE_CHANGE.error(where=query, expected=expected, found=", ".join(new))
    return found


def consequences(log: OffsetLog, changes: Sequence[SourceChange]) -> tuple[str, ...]:
    """Return what each change means for the query's results, in the order given."""
    return tuple(f"{change}: {_consequence(log, change)}" for change in changes)


def _consequence(log: OffsetLog, change: SourceChange) -> str:
    policy = log.confs.get("spark.sql.streaming.multipleWatermarkPolicy", "min")
    late = f"records with an event time before the watermark ({log.watermark_ms} ms) come too late for state"
    match change:
        case ReplacePosition():
            return f"what lies between is left out, or counted again; {late}"
        case AddSource():
            return late if log.watermark_ms else "all of its records from there on count"
        case RemoveSource():
            role = "holds it back no longer" if policy == "min" else "drives it no longer"
            return (
                f"state keeps what came from it; the watermark stays at {log.watermark_ms} ms and advances "
                f"by the other sources alone: this one {role} (policy {policy})"
            )
        case RenameSources():
            return "each keeps its position, whatever order the script has; nothing is read twice or left out"
        case ReorderSources():
            return "each keeps its position, under its new place; nothing is read twice or left out"
        case _:
            assert_never(change)


def _require_known(query: str, log: OffsetLog, changes: Sequence[SourceChange]) -> None:
    named = [change.source for change in changes if isinstance(change, ReplacePosition | RemoveSource)]
    if unknown := sorted(set(named) - log.sources.keys()):
        expected = f"sources of the savepoint ({', '.join(_listed(log))})"
        raise SOURCE_CHANGE.error(where=query, expected=expected, found=", ".join(unknown))
    if twice := sorted({source for source in named if named.count(source) > 1}):
        raise SOURCE_CHANGE.error(
            where=query, expected="one change per source", found=f"several of {', '.join(twice)}"
        )


def _in_order(
    query: str, log: OffsetLog, changes: Sequence[SourceChange], staying: list[str]
) -> Sequence[str]:
    orders = [change.order for change in changes if isinstance(change, ReorderSources)]
    if not orders:
        return staying
    if not log.by_position:
        found = "a reorder: Spark finds them by name in whatever order the script has"
        raise SOURCE_CHANGE.error(where=query, expected="no order of sources with names", found=found)
    if len(orders) > 1 or sorted(orders[0]) != sorted(staying):
        found = "; ".join(", ".join(order) for order in orders)
        raise SOURCE_CHANGE.error(
            where=query, expected=f"one order of exactly {', '.join(staying)}", found=found
        )
    return orders[0]


def _with_added(
    query: str, slots: list[PlannedSource], added: Sequence[AddSource], *, by_position: bool
) -> list[PlannedSource]:
    taken = {slot.source for slot in slots} if not by_position else set()
    places = range(len(slots) + len(added))
    result = list(slots)
    for change in sorted(added, key=lambda change: (len(change.source), change.source)):
        slot = PlannedSource(source=change.source, was=None, position=change.position)
        if not by_position:
            if change.source in taken or not _NAME.fullmatch(change.source):
                expected = "a new name of letters, digits and underscores"
                raise SOURCE_CHANGE.error(where=query, expected=expected, found=change.source)
            result.append(slot)
        elif change.source in taken or change.source not in map(str, places):
            expected = f"each added source at a place of its own, 0 to {len(places) - 1}"
            raise SOURCE_CHANGE.error(where=query, expected=expected, found=change.source)
        else:
            result.insert(int(change.source), slot)
        taken.add(change.source)
    return result


def _listed(log: OffsetLog) -> Collection[str]:
    """Return the sources in the query's order, as far as the log has one: v2 keeps none."""
    return sorted(log.sources, key=int) if log.by_position else list(log.sources)


def _listed_offsets(position: KafkaPosition) -> str:
    offsets = [f"{topic}-{number}@{at}" for (topic, number), at in position.offsets.in_order().items()]
    more = f" and {len(offsets) - 8} more" if len(offsets) > 8 else ""
    return f"{', '.join(offsets[:8])}{more} of cluster {position.cluster_id}"
