"""A plan as text, so that what was approved is what is applied. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, assert_never

from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.kafka.verdict import Bounded, Chosen, Exact, Refused, Verdict
from airflow_flinkstyle.rewrite.errors import PlanFormatError
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
from airflow_flinkstyle.rewrite.rows import PartitionMove, SourceStrategy
from airflow_flinkstyle.storage.keys import is_name

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT_VERSION = 3


def to_json(plan: OffsetRewritePlan) -> str:
    """Render the plan; equal plans give equal text."""
    fields = {
        "format_version": FORMAT_VERSION,
        "savepoint_id": plan.savepoint_id,
        "job": plan.job,
        "batches": dict(plan.batches),
        "target": asdict(plan.target),
        "moves": [_move_fields(move) for move in plan.moves],
        "pending": [_move_fields(move) for move in plan.pending],
        "settled": plan.settled,
        "evidence": dict(plan.evidence),
        "strategies": [asdict(strategy) for strategy in plan.strategies],
        "source_cluster_id": plan.source_cluster_id,
    }
    return json.dumps(fields, sort_keys=True)


def from_json(text: str) -> OffsetRewritePlan:
    """Parse a plan.

    Raises:
        PlanFormatError: If it is malformed, has names that are none, or is of another format: an older plan
            does not say its ways.
    """
    try:
        fields = json.loads(text)
        version = fields.pop("format_version")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise PlanFormatError.of("a JSON object with format_version", text) from error
    if version != FORMAT_VERSION:
        raise PlanFormatError.of(f"format_version {FORMAT_VERSION}", version)
    try:
        plan = OffsetRewritePlan(
            target=_view(fields.pop("target")),
            moves=tuple(_move(entry) for entry in fields.pop("moves")),
            pending=tuple(_move(entry) for entry in fields.pop("pending")),
            strategies=tuple(SourceStrategy(**entry) for entry in fields.pop("strategies")),
            **fields,
        )
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise PlanFormatError.of("the fields of a plan", text) from error
    queries = {*plan.batches, *(move.query for move in (*plan.moves, *plan.pending))}
    for name in (plan.savepoint_id, plan.job, *queries, *(strategy.query for strategy in plan.strategies)):
        if not is_name(name):
            raise PlanFormatError.of("names of a job, a savepoint and queries", name)
    return plan


def _move_fields(move: PartitionMove) -> dict[str, Any]:
    fields = {name: getattr(move, name) for name in PartitionMove.__slots__ if name != "after"}
    return {**fields, "after": _verdict_fields(move.after)}


def _verdict_fields(verdict: Verdict) -> dict[str, Any]:
    match verdict:
        case Exact():
            kind = "exact"
        case Bounded():
            kind = "bounded"
        case Chosen():
            kind = "chosen"
        case Refused():
            kind = "refused"
        case _:
            assert_never(verdict)
    return {"kind": kind, **asdict(verdict)}


def _move(fields: Mapping[str, Any]) -> PartitionMove:
    return PartitionMove(**{**fields, "after": _verdict(dict(fields["after"]))})


def _verdict(fields: dict[str, Any]) -> Verdict:
    kinds: dict[str, type[Exact | Bounded | Chosen | Refused]] = {
        "exact": Exact,
        "bounded": Bounded,
        "chosen": Chosen,
        "refused": Refused,
    }
    kind = kinds[fields.pop("kind")]
    source_range = fields.get("source_range")
    if source_range is not None:
        fields["source_range"] = (int(source_range[0]), int(source_range[1]))
    return kind(**fields)


def _view(fields: Mapping[str, Any]) -> ClusterView:
    topics = {
        name: TopicView(
            topic_id=topic["topic_id"],
            partitions={int(number): LogRange(**log) for number, log in topic["partitions"].items()},
        )
        for name, topic in fields["topics"].items()
    }
    return ClusterView(cluster_id=fields["cluster_id"], topics=topics)
