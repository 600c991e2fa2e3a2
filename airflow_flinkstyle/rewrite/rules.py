"""How each Kafka source of a savepoint is to move, as it was asked for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from airflow_flinkstyle.kafka.start.kinds import StartRules
from airflow_flinkstyle.rewrite.rows import MigrationStrategy
from airflow_flinkstyle.typed_json import stored

if TYPE_CHECKING:
    from airflow_flinkstyle.rewrite.rows import SourceRef


Topology = Literal["refuse", "repartitioned"]
"""What to do with topics whose partitions do not match the target's: refuse them, or start at a position."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRule:
    """How one source moves."""

    strategy: MigrationStrategy = "proved"
    start: StartRules | None = None
    """The chosen positions: of all topics of a ``new_identity``, of the repartitioned topics of the others;
    ``producers_first`` begins at the earliest record if this is not given."""
    topology: Topology = "refuse"

    @property
    def has_chosen_start(self) -> bool:
        """Whether partitions of the old topics need not be the target's."""
        return self.strategy != "proved" or self.topology == "repartitioned"

    @property
    def needs_empty_target(self) -> bool:
        """Whether what is on the target already would be read as if it were new."""
        return self.strategy == "producers_first" and self.start is None


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRules:
    """How each source of a savepoint moves."""

    default: SourceRule = SourceRule()
    sources: Mapping[str, SourceRule] = field(default_factory=dict)
    """By ``query/source``; sources left out follow ``default``."""

    def of(self, ref: SourceRef) -> SourceRule:
        """Return the rule for a source."""
        return self.named(str(ref))

    def named(self, source: str) -> SourceRule:
        """Return the rule for a source, by ``query/source``."""
        return self.sources.get(source, self.default)

    @property
    def all(self) -> tuple[SourceRule, ...]:
        """Every rule that may apply."""
        return (self.default, *self.sources.values())

    @property
    def drains(self) -> bool:
        """Whether a source must be read to the end of its old topics."""
        return any(rule.strategy == "producers_first" for rule in self.all)

    @property
    def chooses(self) -> bool:
        """Whether a person picked positions, so that ``chosen`` is what was asked for."""
        return any(rule.start is not None for rule in self.all)


PROVED = StrategyRules()
"""Every source by comparing both logs."""
