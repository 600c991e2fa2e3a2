"""Turns a DAG's answers about mirrors, ways and sources into rules, resolved on live clusters."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.settings import Isolation
from airflow_flinkstyle.kafka.start.text import parse_rules
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.rewrite.apply import picked_position
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
from airflow_flinkstyle.rewrite.rows import MigrationStrategy
from airflow_flinkstyle.rewrite.rules import SourceRule, StrategyRules, Topology
from airflow_flinkstyle.rewrite.savepoint_start import offsets_of
from airflow_flinkstyle.rewrite.source_changes import (
    AddSource,
    RemoveSource,
    RenameSources,
    ReorderSources,
    ReplacePosition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.kafka.start.kinds import AtOffsets
    from airflow_flinkstyle.kafka.start.text import SavepointOffsets
    from airflow_flinkstyle.rewrite.source_changes import SourceChange
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

NO_ALIAS = "none"
"""The answer of a form's field that must not be empty, if MirrorMaker names no cluster."""
_FLAGS = {True: True, False: False, "True": True, "False": False, "true": True, "false": False}
"""Templates turn an answer into text unless the DAG renders native objects, and any text is true."""
_CHOICES: Mapping[str, Mapping[Any, Any]] = {
    "sole_writer": _FLAGS,
    "keeps_offsets": _FLAGS,
    "replication_policy": {"identity": "identity", "default": "default"},
    "isolation": {name: name for name in get_args(Isolation)},
    "syncs_on": {"source": "source", "target": "target"},
}


def mirror_settings(answers: Mapping[str, Any]) -> MirrorSettings:
    """Read ``MirrorSettings`` from a mapping with its fields' names; empty answers take the defaults."""
    given = _given(answers)
    known = {item.name for item in fields(MirrorSettings)}
    if wrong := sorted(set(given) - known):
        raise _bad_rule("mirror settings", f"fields among {sorted(known)}", wrong)
    if given.get("keeps_offsets"):  # such a mirror has no aliases; they only name it
        given = {"source_alias": "source", "target_alias": "target", **given}
    missing = sorted({"source_alias", "target_alias"} - set(given))
    if missing:
        raise _bad_rule("mirror settings", "source_alias and target_alias", f"no {' and no '.join(missing)}")
    return MirrorSettings(**given)


def mirror_if_named(answers: Mapping[str, Any] | None) -> MirrorSettings | None:
    """Read ``MirrorSettings``; None if the answers name no mirror, as forms do where none is needed."""
    given = _given(answers or {})
    named = any(given.get(name) for name in ("source_alias", "target_alias", "keeps_offsets"))
    return mirror_settings(given) if named else None


def _given(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answers that are not empty, as values."""
    given = {name: value for name, value in answers.items() if value not in (None, "")}
    for alias in ("source_alias", "target_alias"):
        if given.get(alias) == NO_ALIAS:  # a form asks for one way or the other
            del given[alias]
    for name in given.keys() & _CHOICES.keys():
        value, choices = given[name], _CHOICES[name]
        if not isinstance(value, bool | str) or value not in choices:
            raise _bad_rule("mirror settings", f"{name} among {sorted(map(str, choices))}", repr(value))
        given[name] = choices[value]
    if "ignored_headers" in given:
        given["ignored_headers"] = names_of(given["ignored_headers"])
    return given


def proof_request(
    *,
    mirror: Mapping[str, Any] | None,
    rename: Mapping[str, str] | None,
    isolation: str,
    preview: bool = False,
) -> ProofRequest:
    """Return the rules of a translation; positions and ids come from the savepoint."""
    return ProofRequest(
        mirror=mirror_if_named(mirror),
        rename=dict(rename or {}),
        isolation=isolation_of(isolation),
        preview=preview,
    )


def isolation_of(text: str) -> Isolation:
    """Read a job's isolation level."""
    if text not in get_args(Isolation):
        raise _bad_rule("job", f"an isolation among {get_args(Isolation)}", repr(text))
    return cast("Isolation", text)


def plan_of(text: str | Mapping[str, Any]) -> OffsetRewritePlan:
    """Read a plan from XCom: as text, or as the mapping that native rendering makes of it."""
    return OffsetRewritePlan.from_json(text if isinstance(text, str) else json.dumps(text))


def names_of(text: Sequence[str] | str | None) -> tuple[str, ...]:
    """Read names from a list, or from text with semicolons or lines between them (names hold commas)."""
    parts = text.replace("\n", ";").split(";") if isinstance(text, str) else text or ()
    return tuple(part.strip() for part in parts if part.strip())


def _bad_rule(what: str, expected: str, found: object) -> BadInputError:
    return BadInputError(
        f"The {what} should have {expected}, but there is {found}.",
        state_after="Nothing was changed.",
        remedy="Correct the operator's argument, the DAG's form or the command's option.",
    )


# A DAG's answers about the way to migrate, as the library's rules.

_FIELDS = ("way", "start", "topology")


def strategy_rules(
    *,
    way: str = "proved",
    start: object = None,
    topology: str = "refuse",
    sources: Mapping[str, Mapping[str, Any]] | None = None,
    savepoint: SavepointOffsets | None = None,
) -> StrategyRules:
    """Read the rules of a migration; empty answers take the defaults.

    Args:
        way: Of every source that ``sources`` leaves out.
        start: As ``kafka.start.text`` reads it.
        topology: ``refuse`` or ``repartitioned``.
        sources: ``query/source`` -> any of ``way``, ``start``, ``topology``.
        savepoint: Finds the offsets of a start ``savepoint:...``.

    Raises:
        BadInputError: If something cannot be understood.
    """
    default = {"way": way, "start": start, "topology": topology}
    given = {name: {**default, **_known(name, answers)} for name, answers in (sources or {}).items()}
    return StrategyRules(
        default=_rule(default, savepoint),
        sources={name: _rule(answers, savepoint) for name, answers in given.items()},
    )


def savepoint_offsets(repository: SavepointRepository) -> SavepointOffsets:
    """Return a function that finds the offsets of the job's savepoint: ``ID`` or ``ID/QUERY/SOURCE``."""

    def offsets(text: str) -> AtOffsets:
        savepoint_id, _, source = text.partition("/")
        return offsets_of(repository.read(savepoint_id), source)

    return offsets


def _rule(answers: Mapping[str, Any], savepoint: SavepointOffsets | None) -> SourceRule:
    way, topology, start = (answers[name] for name in ("way", "topology", "start"))
    for name, value, known in (
        ("way", way, get_args(MigrationStrategy)),
        ("topology", topology, get_args(Topology)),
    ):
        if value not in known:
            raise _bad(f"a {name} among {', '.join(known)}", value)
    return SourceRule(
        strategy=cast("MigrationStrategy", way),
        start=None if start in (None, "") else parse_rules(start, savepoint=savepoint),
        topology=cast("Topology", topology),
    )


def _known(source: str, answers: Mapping[str, Any]) -> Mapping[str, Any]:
    if wrong := sorted(set(answers) - set(_FIELDS)):
        raise _bad(f"{', '.join(_FIELDS)} for source {source}", wrong)
    return answers


def _bad(expected: str, found: object) -> BadInputError:
    return BadInputError(
        f"A migration's rules should have {expected}, but there is {found!r}.",
        state_after="Nothing was changed.",
        remedy="Correct the operator's argument, the DAG's form or the command's option.",
    )


# A DAG's answers about a query's sources, as changes of a savepoint, resolved on live clusters.

_KINDS: Final = ("remove", "order", "replace", "add", "rename")
_PLACE: Final = ("kafka_conn_id", "topics", "start")


def source_changes(
    asked: Mapping[str, Mapping[str, Any]],
    manifest: Manifest,
    repository: SavepointRepository,
    kafka: Callable[[str], KafkaCluster],
) -> list[SourceChange]:
    """Read the changes of a savepoint's sources, and find every position on its cluster.

    Args:
        asked: Query -> any of ``remove``: sources, ``order``: those that stay in the script's new order,
            ``replace`` and ``add``: source -> ``kafka_conn_id``, ``topics`` and ``start``; ``rename``:
            source -> its name, or its place.
        manifest: The savepoint.
        repository: The savepoints of ``savepoint:...``.
        kafka: Opens the cluster of a connection.

    Raises:
        BadInputError: If something cannot be understood.
        FlinkstyleError: If a position does not exist on its cluster.
    """
    savepoint = savepoint_offsets(repository)
    changes: list[SourceChange] = []
    for query, wanted in _fields("queries", asked).items():
        snapshot = manifest.query(query)
        before = snapshot.kafka if snapshot else {}
        parts = _fields(f"changes of query {query}", wanted, _KINDS)
        changes += [RemoveSource(query=query, source=source) for source in _names(parts.get("remove", ()))]
        if parts.get("order"):
            changes.append(ReorderSources(query=query, order=_names(parts["order"])))
        if parts.get("rename"):
            names = _fields("sources to rename", parts["rename"])
            changes.append(
                RenameSources(query=query, names={source: str(name) for source, name in names.items()})
            )
        for source, place in _places(parts.get("replace")):
            position = _position(place, kafka, savepoint, before.get(source))
            changes.append(ReplacePosition(query=query, source=source, position=position))
        for source, place in _places(parts.get("add")):
            changes.append(
                AddSource(query=query, source=source, position=_position(place, kafka, savepoint, None))
            )
    return changes


def _position(
    place: Mapping[str, Any],
    kafka: Callable[[str], KafkaCluster],
    savepoint: SavepointOffsets,
    before: KafkaPosition | None,
) -> KafkaPosition:
    if missing := [name for name in _PLACE if not place.get(name)]:
        raise _bad_source(f"{', '.join(_PLACE)} for a source with a new position", f"no {', '.join(missing)}")
    start = parse_rules(place["start"], savepoint=savepoint)
    return picked_position(kafka(str(place["kafka_conn_id"])), _names(place["topics"]), start, before)


def _places(value: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for source, place in _fields("sources", value or {}).items():
        yield source, _fields(f"the place of source {source}", place, _PLACE)


def _fields(what: str, value: object, known: tuple[str, ...] | None = None) -> dict[str, Any]:
    if not isinstance(value, dict) or (known and not value.keys() <= set(known)):
        raise _bad_source(f"{what} as a mapping" + (f" of any of {', '.join(known)}" if known else ""), value)
    return {str(name): field for name, field in value.items()}


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, str | int):
        return (str(value),)
    if not isinstance(value, list | tuple):
        raise _bad_source("a list of names", value)
    return tuple(map(str, value))


def _bad_source(expected: str, found: object) -> BadInputError:
    return BadInputError(
        f"Changes of sources should have {expected}, but there is {found!r:.200}.",
        state_after="Nothing was changed.",
        remedy="Correct the operator's argument; its documentation shows one of each kind.",
    )
