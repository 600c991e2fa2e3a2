"""Which tables a rewind has to put back, as its caller requests, and what its driver did with each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from airflow_flinkstyle.protocol.record import Record, SignedRecord
from airflow_flinkstyle.storage.keys import Name
from airflow_flinkstyle.types import Count, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesToRestore(SignedRecord):
    """``runs/<generation>/tables-to-restore.json``: the caller's, created once, before the takeover order."""

    what: ClassVar[str] = "tables to restore"

    own_ids: Mapping[Name, tuple[Text, ...]]
    """Query name -> every id that a query of this name has had in the job: rows that these ids wrote into its
    table since the savepoint are taken back before it starts. Tables of other queries stay as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTable(Record):
    """``runs/<generation>/restored-tables/<query>.json``: the agent's, created before the query starts.

    Once it is there, no driver of this generation puts the table back again: later rows are the generation's
    own.
    """

    what: ClassVar[str] = "restored table"

    format: Text
    """``delta`` or ``iceberg``."""
    found: Count
    """The version that the table had, or its snapshot."""
    put_back_to: Count
    """The version that it was put back to; ``found`` if there was nothing to take back."""
    rows: Count | None
    """How many rows were taken back; None if the table does not record it."""

    def __str__(self) -> str:
        """Describe it for people."""
        if self.put_back_to == self.found:
            return f"its {self.format} table held nothing to take back any more"
        rows = "an unknown number of" if self.rows is None else f"{self.rows:,}"
        return (
            f"its {self.format} table was put back from version {self.found} to {self.put_back_to}: "
            f"{rows} rows taken back"
        )
