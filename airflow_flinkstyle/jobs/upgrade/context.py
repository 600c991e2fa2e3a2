"""What every phase of an upgrade is given beside what a cutover has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow_flinkstyle.jobs.cutover.context import CutoverContext
from airflow_flinkstyle.jobs.upgrade.health import UNWATCHED, Bounds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.comparison import CompareAsked, Expect
    from airflow_flinkstyle.jobs.start.origins import FromSavepoint
    from airflow_flinkstyle.protocol.records import CutoverKind
    from airflow_flinkstyle.types import Rewind

Standby = Literal["warm", "none"]
"""``warm``: the new version's driver is up and waits before the old one stops; ``none``: it starts then."""


@dataclass(kw_only=True)
class UpgradeContext(CutoverContext):
    """One upgrade of one job, as every attempt knows it."""

    NEXT: ClassVar[str] = "new"
    CUTOVER: ClassVar[CutoverKind] = "upgrade"

    standby: Standby = "warm"
    if_committed: Rewind = "continue"
    """How to go back from a version that had committed, or moved a sink; ``continue`` raises instead."""
    skip_known_batches: bool = False
    """Accept, for the rollback, that a sink or a function leaves out batch ids that it has seen."""
    compare: CompareAsked | None = None
    """What both versions compute on the same records before the old one stops; None: not compared."""
    compare_from: str | None = None
    """The savepoint from which both run; None for the newest."""
    expect: Expect = "same"
    """With which outcome the upgrade continues; ``differs``: any."""
    comparison: Mapping[str, Any] | None = None
    """A comparison that a person has already read: kept in the report, and not made again."""
    bounds: Bounds = UNWATCHED
    """What the new version must keep once it has committed."""
    back_to: FromSavepoint | None = None
    """Start from this savepoint and not from where the old version stopped: batches are given up, or
    repeated, as its ``rewind`` says. It is what the standby restores and rehearses on."""

    @property
    def takes_tables_back(self) -> bool:
        """Whether what the old version wrote into tables since that savepoint is taken back."""
        return self.back_to is not None and self.back_to.restore_tables
