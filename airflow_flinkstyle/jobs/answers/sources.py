"""From what a DAG says about a query's sources to changes of a savepoint, resolved on live clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.answers.strategies import savepoint_offsets
from airflow_flinkstyle.kafka.start.text import parse_rules
from airflow_flinkstyle.rewrite.position import picked_position
from airflow_flinkstyle.rewrite.source_changes import (
    AddSource,
    RemoveSource,
    ReorderSources,
    ReplacePosition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.kafka.start.text import SavepointOffsets
    from airflow_flinkstyle.rewrite.source_changes import SourceChange
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

_KINDS: Final = ("remove", "order", "replace", "add")
_PLACE: Final = ("kafka_conn_id", "topics", "start")


def source_changes(
    asked: Mapping[str, Mapping[str, Any]],
    manifest: Manifest,
    repository: SavepointRepository,
    kafka: Callable[[str], KafkaCluster],
) -> list[SourceChange]:
    """Read what is to become of a savepoint's sources, and find every position on its cluster.

    Args:
        asked: Query -> any of ``remove``: sources, ``order``: those that stay in the script's new order,
            ``replace`` and ``add``: source -> ``kafka_conn_id``, ``topics`` and ``start``.
        manifest: The savepoint.
        repository: Where offsets of ``savepoint:...`` are looked up.
        kafka: Opens the cluster of a connection.

    Raises:
        BadInputError: If something cannot be understood.
        FlinkstyleError: If a position does not exist on its cluster.
    """
    savepoint = savepoint_offsets(repository)
    found: list[SourceChange] = []
    for query, wishes in _fields("queries", asked).items():
        snapshot = manifest.query(query)
        before = snapshot.kafka if snapshot else {}
        parts = _fields(f"changes of query {query}", wishes, _KINDS)
        found += [RemoveSource(query=query, source=source) for source in _names(parts.get("remove", ()))]
        if parts.get("order"):
            found.append(ReorderSources(query=query, order=_names(parts["order"])))
        for source, place in _places(parts.get("replace")):
            position = _position(place, kafka, savepoint, before.get(source))
            found.append(ReplacePosition(query=query, source=source, position=position))
        for source, place in _places(parts.get("add")):
            found.append(
                AddSource(query=query, source=source, position=_position(place, kafka, savepoint, None))
            )
    return found


def _position(
    place: Mapping[str, Any],
    kafka: Callable[[str], KafkaCluster],
    savepoint: SavepointOffsets,
    before: KafkaPosition | None,
) -> KafkaPosition:
    if missing := [name for name in _PLACE if not place.get(name)]:
        raise _bad(f"{', '.join(_PLACE)} for a source with a new position", f"no {', '.join(missing)}")
    start = parse_rules(place["start"], savepoint=savepoint)
    return picked_position(kafka(str(place["kafka_conn_id"])), _names(place["topics"]), start, before)


def _places(value: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for source, place in _fields("sources", value or {}).items():
        yield source, _fields(f"the place of source {source}", place, _PLACE)


def _fields(what: str, value: object, known: tuple[str, ...] | None = None) -> dict[str, Any]:
    if not isinstance(value, dict) or (known and not value.keys() <= set(known)):
        raise _bad(f"{what} as a mapping" + (f" of any of {', '.join(known)}" if known else ""), value)
    return {str(name): field for name, field in value.items()}


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, str | int):
        return (str(value),)
    if not isinstance(value, list | tuple):
        raise _bad("a list of names", value)
    return tuple(map(str, value))


def _bad(expected: str, found: object) -> BadInputError:
    return BadInputError(
        f"Changes of sources should have {expected}, but there is {found!r:.200}.",
        state_after="Nothing was changed.",
        remedy="Correct the operator's argument; its documentation shows one of each kind.",
    )
