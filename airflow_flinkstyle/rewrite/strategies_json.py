"""The ways of sources, and the starts that people picked, as plain values for JSON, and back. Pure.

A start that was read from a file or a savepoint is its table here: those may change or vanish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.kafka.start.kinds import (
    AtOffsets,
    AtTimestamp,
    Earliest,
    FromGroup,
    Latest,
    LogIdentity,
    Shifted,
    Start,
    StartRules,
)
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.python_versions import assert_never
from airflow_flinkstyle.rewrite.rules import SourceRule, StrategyRules
from airflow_flinkstyle.typed_json import decode, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.types import TopicPartition


def strategies_fields(rules: StrategyRules) -> dict[str, Any]:
    """Return the rules of a migration as plain values."""
    return {
        "default": _rule_fields(rules.default),
        "sources": {name: _rule_fields(rule) for name, rule in rules.sources.items()},
    }


def strategies_of(fields: Mapping[str, Any]) -> StrategyRules:
    """Read what ``strategies_fields`` made; else it raises ``KeyError``, ``TypeError`` or the like."""
    return StrategyRules(
        default=_rule(fields["default"]),
        sources={name: _rule(rule) for name, rule in fields["sources"].items()},
    )


def _rule_fields(rule: SourceRule) -> dict[str, Any]:
    start = None if rule.start is None else _rules_fields(rule.start)
    return {"strategy": rule.strategy, "start": start, "topology": rule.topology}


def _rule(fields: Mapping[str, Any]) -> SourceRule:
    start = fields["start"]
    return SourceRule(
        strategy=fields["strategy"],
        start=None if start is None else _rules(start),
        topology=fields["topology"],
    )


def _rules_fields(rules: StartRules) -> dict[str, Any]:
    partitions = {tp: _start_fields(start) for tp, start in rules.partitions.items()}
    return {
        "default": None if rules.default is None else _start_fields(rules.default),
        "topics": {topic: _start_fields(start) for topic, start in rules.topics.items()},
        "partitions": _by_topic(partitions),
    }


def _rules(fields: Mapping[str, Any]) -> StartRules:
    default = fields["default"]
    return StartRules(
        default=None if default is None else _start(default),
        topics={topic: _start(start) for topic, start in fields["topics"].items()},
        partitions={tp: _start(start) for tp, start in _by_partition(fields["partitions"]).items()},
    )


def _start_fields(start: Start) -> dict[str, Any]:
    match start:
        case Earliest():
            return {"kind": "earliest"}
        case Latest():
            return {"kind": "latest"}
        case AtTimestamp(ms, after_last):
            return {"kind": "timestamp", "ms": ms, "after_last": after_last}
        case FromGroup(group, missing):
            return {"kind": "group", "group": group, "missing": missing}
        case AtOffsets(offsets, origin, logs):
            named = {t: {"cluster_id": one.cluster_id, "topic_id": one.topic_id} for t, one in logs.items()}
            return {"kind": "offsets", "offsets": encode(offsets), "origin": origin, "logs": named}
        case Shifted(records, ms):
            return {"kind": "shift", "records": records, "ms": ms}
        case _:
            assert_never(start)


def _start(fields: Mapping[str, Any]) -> Start:
    values = dict(fields)
    kind = values.pop("kind")
    if kind == "offsets":
        return AtOffsets(
            decode(Offsets, values["offsets"]),
            origin=values["origin"],
            logs={topic: LogIdentity(**one) for topic, one in values["logs"].items()},
        )
    kinds: dict[str, type[Earliest | Latest | AtTimestamp | FromGroup | Shifted]] = {
        "earliest": Earliest,
        "latest": Latest,
        "timestamp": AtTimestamp,
        "group": FromGroup,
        "shift": Shifted,
    }
    return kinds[kind](**values)


def _by_topic(values: Mapping[TopicPartition, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for (topic, number), value in values.items():
        found.setdefault(topic, {})[str(number)] = value
    return found


def _by_partition(values: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, Any]:
    return {
        (topic, int(number)): value for topic, numbers in values.items() for number, value in numbers.items()
    }
