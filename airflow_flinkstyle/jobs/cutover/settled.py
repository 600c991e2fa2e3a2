"""How a migration or an upgrade rests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Where = Literal["untouched", "old", "new"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Where the job and its producers are, for good."""

    where: Where
    """``old`` and ``new``: the cluster of a migration, the version of an upgrade."""
    generation: int | None
    detail: str


UNTOUCHED = Settled(where="untouched", generation=None, detail="The window never began.")
