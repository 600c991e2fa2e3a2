"""Who works on a migration or an upgrade, as the others see it: a beat that must change.

Nobody compares the time of another machine with its own: a reader looks, and looks again later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from airflow_flinkstyle.protocol.record import Record

CutoverKind: TypeAlias = Literal["migration", "upgrade"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRecord(Record):
    """``migrations/<id>/0-work.json``: written again and again by the attempt that works on it.

    Nothing is started or stopped for it: it says when others may bring the migration or upgrade to rest, and
    until when a driver that was told to take over may.
    """

    what: ClassVar[str] = "work on a cutover"

    cutover: CutoverKind
    attempt: int
    beat: int
    """Counted by the attempt; with ``attempt`` it tells two beats apart."""
    holder: str
    """The machine and the process that work on it, for people."""
    lease_s: float
    """Not written again for so long: nobody works on it any more."""
    held_s: float
    """For how long from the begin of this write producers are certain to be held; 0 before the takeover
    order, and where none are held."""
    written_at_ms: int
    """Epoch milliseconds by that machine's clock, for people."""
