"""The ways a Kafka source can move to another cluster, chosen per source. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.start import StartRules
    from airflow_flinkstyle.rewrite.plan import SourceRef

Way = Literal["proved", "new_identity", "producers_first"]
"""How a source gets its position on the target:

- ``proved``: where its unread records stand there, by comparing both logs (also under a new name).
- ``new_identity``: a position that a person picks; the old one is dropped.
- ``producers_first``: the source is read to its fenced end, then the target from its start.
"""

Topology = Literal["refuse", "repartitioned"]
"""What about topics whose partitions are not the target's one by one: refuse, or start them by a position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRule:
    """How one source moves."""

    way: Way = "proved"
    start: StartRules | None = None
    """Where to begin what begins anew: all of a ``new_identity``, the repartitioned topics of the others;
    ``producers_first`` begins at the earliest record unless this says otherwise."""
    topology: Topology = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class WayRules:
    """How each source of a savepoint moves."""

    default: SourceRule = SourceRule()
    sources: Mapping[str, SourceRule] = field(default_factory=dict)
    """By ``query/source``; sources left out follow ``default``."""

    def of(self, ref: SourceRef) -> SourceRule:
        """Return the rule for a source."""
        return self.sources.get(f"{ref.query}/{ref.source}", self.default)

    @property
    def all(self) -> tuple[SourceRule, ...]:
        """Every rule that may apply."""
        return (self.default, *self.sources.values())

    @property
    def chooses(self) -> bool:
        """Whether a person picked positions, so that ``chosen`` is what was asked for."""
        return any(rule.start is not None for rule in self.all)
