"""How a script declares a query that it starts: is it the query that was started before under the name?

Spark identifies a query by its ``checkpointLocation`` alone, which the agent replaces; so the script's own
location identifies it here. Without one plain Spark begins anew at each start: a second one is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.stream_options import SCHEMA_OPTIONS
from airflow_flinkstyle.protocol.query_records import Declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_flinkstyle.agent.core.spark import Spark, StreamingSource
    from airflow_flinkstyle.agent.core.stream_options import StreamOptions

_LOCATION = "checkpointlocation"
_LOCATION_CONF = "spark.sql.streaming.checkpointLocation"
_SERVERS = "kafka.bootstrap.servers"
_MAY_CHANGE = ("starting", "ending", "max", "min", "failondataloss", "kafka.", _LOCATION, *SCHEMA_OPTIONS)
"""Options (by their prefix) that set how to read and write, not what and where."""
_PLACES = ("path", "topic", "subscribe", "subscribepattern", "assign", _SERVERS)
"""Options that a message may show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredPlace:
    """What is read, or written to."""

    shown: str
    """For messages."""
    compared: str
    """With every option that sets what and where; may hold secrets."""

    @staticmethod
    def of(kind: str, options: Mapping[str, str]) -> DeclaredPlace:
        """Describe a source or a sink; Spark ignores the case of options."""
        lowered = {name.lower(): value for name, value in options.items()}
        shown = [kind, *(lowered[name] for name in _PLACES if name in lowered)]
        identifying = {
            name: value
            for name, value in lowered.items()
            if name == _SERVERS or not name.startswith(_MAY_CHANGE)
        }
        return DeclaredPlace(shown=" ".join(shown), compared=json.dumps([kind, identifying], sort_keys=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One start of a query, as the script asks for it."""

    location: str | None
    """The script's own checkpoint, for comparisons; None if plain Spark would make a new one each time."""
    named: str | None = None
    """The same, exactly as Spark would be given it."""
    sink: DeclaredPlace
    sources: DeclaredPlace

    def recorded(self) -> Declared:
        """Return what a relaunched driver compares, without secrets."""
        return Declared(
            location=None if self.location is None else _digest(self.location),
            sink=_digest(self.sink.compared),
            sources=_digest(self.sources.compared),
        )


def declaration(spark: Spark, settings: StreamOptions, sources: Sequence[StreamingSource]) -> Declaration:
    """Return how the script declares a query that it starts now."""
    default = spark.setting(_LOCATION_CONF) or None
    kind = (settings.format or "default format").lower()
    return Declaration(
        location=own_location(settings, default),
        named=named_location(settings, default),
        sink=DeclaredPlace.of(
            kind if settings.table is None else f"table {settings.table}", settings.options
        ),
        sources=_all(
            DeclaredPlace.of(f"{source.provider} {source.detail}".strip(), source.options)
            for source in sources
        ),
    )


def named_location(settings: StreamOptions, default: str | None) -> str | None:
    """Return where plain Spark would keep the checkpoint, and find it at the next start.

    Below the session's default (``spark.sql.streaming.checkpointLocation``) it is in a folder of the
    query's name; a query without one gets a new folder each time.
    """
    given = settings.options.get(_LOCATION)
    if given is None and default is not None and settings.query_name is not None:
        given = f"{default}/{settings.query_name}"
    return given


def own_location(settings: StreamOptions, default: str | None) -> str | None:
    """Return the same with one spelling for each place, to be compared."""
    given = named_location(settings, default)
    return None if given is None else re.sub(r"(?<!:)/+", "/", given).rstrip("/")


def _all(places: Iterable[DeclaredPlace]) -> DeclaredPlace:
    found = list(places)
    return DeclaredPlace(
        shown=", ".join(place.shown for place in found),
        compared=json.dumps([place.compared for place in found]),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def difference(before: Declaration, now: Declaration) -> str | None:
    """Return why two starts in one process are not of one query; None if they are. Pure."""
    found = []
    if before.location != now.location:
        found.append(f"another checkpointLocation ({_shown(now)}, not {_shown(before)})")
    if before.sink != now.sink:
        found.append(f"another output ({now.sink.shown}, not {before.sink.shown})")
    if before.sources != now.sources:
        found.append(f"other sources ({now.sources.shown}, not {before.sources.shown})")
    if not found and now.location is None:
        found.append("no checkpointLocation, with which plain Spark would start from the beginning")
    return " and ".join(found) or None


def _shown(declared: Declaration) -> str:
    return declared.location or "none"


def difference_since_relaunch(before: Declared, now: Declaration) -> str | None:
    """Return why a start is not of the query that an earlier incarnation ran; None if it is. Pure.

    Where the script has a checkpoint location, that alone decides, as when Spark is started again: a path
    or a list of topics may be made anew by each process.
    """
    recorded = now.recorded()
    if before.location != recorded.location:
        return f"another checkpointLocation ({_shown(now)})"
    if now.location is not None:
        return None
    if before.sink != recorded.sink:
        return f"another output ({now.sink.shown})"
    return f"other sources ({now.sources.shown})" if before.sources != recorded.sources else None
