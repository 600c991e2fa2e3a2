"""From what a DAG says about the way to migrate to the library's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, get_args

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.start.text import parse_rules
from airflow_flinkstyle.rewrite.rows import MigrationStrategy
from airflow_flinkstyle.rewrite.rules import SourceRule, StrategyRules, Topology
from airflow_flinkstyle.rewrite.savepoint_start import offsets_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.start.kinds import AtOffsets
    from airflow_flinkstyle.kafka.start.text import SavepointOffsets
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

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
        savepoint: What finds the offsets of a start ``savepoint:...``.

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
    """Return what finds the offsets of a savepoint of the job: ``ID`` or ``ID/QUERY/SOURCE``."""

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
