"""What a caller asks of a rewind about the tables that the job writes to, and what its driver has done."""

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
    """Query name -> every id that a query of this name has had in the job: what these have written into its
    table since the savepoint is taken back before it starts. The table of another query stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTable(Record):
    """``runs/<generation>/restored-tables/<query>.json``: the agent's, created before the query starts.

    Once it is there, no driver of this generation looks at the table again: what is written into it from then
    on is the generation's own.
    """

    what: ClassVar[str] = "restored table"

    format: Text
    """``delta`` or ``iceberg``."""
    found: Count
    """The version that the table had, or its snapshot."""
    put_back_to: Count
    """The one that it was put back to; ``found`` if there was nothing to take back."""
    rows: Count | None
    """So many rows were taken back; None if the table does not say."""

    def __str__(self) -> str:
        """Describe it for people."""
        if self.put_back_to == self.found:
            return f"its {self.format} table held nothing to take back any more"
        rows = "an unknown number of" if self.rows is None else f"{self.rows:,}"
        return (
            f"its {self.format} table was put back from version {self.found} to {self.put_back_to}: "
            f"{rows} rows taken back"
        )
