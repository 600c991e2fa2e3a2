"""``metadata``: the query's id and, since Spark 4.2, what it knows of its sources (``StreamMetadata``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_flinkstyle.checkpoint.errors import LogFormatError
from airflow_flinkstyle.checkpoint.logfile import json_object


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMetadata:
    """The ``metadata`` file; fields that this package does not know are kept as they are."""

    raw: str
    query_id: str
    """Identity of the query over all its restarts; sinks deduplicate by it."""

    def render(self) -> str:
        """Return exactly the text that was parsed."""
        return self.raw

    @property
    def fields(self) -> dict[str, Any]:
        """Everything in the file, ``controlBatchInfo`` and ``sourceMetadataInfo`` included."""
        return json_object(self.raw, "Checkpoint's metadata")


def parse(text: str) -> QueryMetadata:
    """Parse the content of ``metadata``; raises ``LogFormatError`` if it has no query id."""
    query_id = json_object(text, "Checkpoint's metadata").get("id")
    if not isinstance(query_id, str) or not query_id:
        raise LogFormatError.of("Checkpoint's metadata", "a query id", text)
    return QueryMetadata(raw=text, query_id=query_id)
