"""What a new version changes against the savepoint, as a table for people; what cannot continue is refused.

Spark's own checks of the state, the guard of sources and ``compat`` refuse as well; the table gives the
reasons, and what did not change. Python and output modes come from the last run's heartbeat.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from platform import python_version
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.agent.core.errors import VERSION_INCOMPATIBLE
from airflow_flinkstyle.checkpoint import state_columns
from airflow_flinkstyle.checkpoint.stores_in_use import SHUFFLE_PARTITIONS
from airflow_flinkstyle.protocol.rehearsal_records import Compared, RehearsedQuery
from airflow_flinkstyle.savepoint.compat import PROVIDER, check_confs, check_version
from airflow_flinkstyle.sinks.resume import is_lineage_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.spark import StreamingSource
    from airflow_flinkstyle.protocol.records import Heartbeat
    from airflow_flinkstyle.protocol.rehearsal_records import Verdict
    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot

_LOG_VERSIONS = (1, 2)
_UNKNOWN = "unknown"
_OTHER_SINK = "What the old sink holds stays there; the new one begins after it."
_OTHER_MODE = "From the next batch on the sink is given the rows of the new mode."
_OTHER_PYTHON = "Functions run on the new one, which must be able to read what they have pickled into state."
_OTHER_LINEAGE = (
    "The new one has not written the batches so far, so that its first would be refused (SINK_LINEAGE). Keep "
    "the name, or start from the savepoint with rewind='fork'."
)
_ACCEPTED = "Spark accepts it; the old version may not be able to read it back."
_SCHEMAS: Final = re.compile(
    r"(?P<side>key|value)_schema=(?P<one>StructType\(.*?\)) and \w+ (?:key|value)_schema="
    r"(?P<other>StructType\(.*?\))\.?\s*\n|oldSchema=(?P<old>.*?), newSchema=(?P<new>.*?)\.\s*\n"
)
"""The two schemas in Spark's errors: first the existing one, but where a value's cannot evolve."""
_NEW_FIRST = "Schema evolution is not possible new value_schema="


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverVersion:
    """The versions that this driver runs its script with."""

    spark: str
    """Spark's version."""
    python: str = field(default_factory=python_version)
    """Of the driver; Spark insists on the same minor version for its workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateWritten:
    """The hot savepoint's state was rewritten, and how long that took."""

    before: str
    """Id of the savepoint."""
    now: str
    """Id of the one with the new state."""
    seconds: float

    def compared(self) -> Compared:
        """Return it for the table: the window, in which the job is down, has to do the same once more."""
        return Compared(
            what="state",
            before=self.before,
            now=self.now,
            verdict="compatible",
            reason=f"Written anew, every key compared, in {self.seconds:.1f} s; the window does it once "
            "more, while the job is down.",
        )


def compare_job(manifest: Manifest, now: DriverVersion, before: Heartbeat | None) -> list[Compared]:
    """Return the rows for the job.

    Args:
        manifest: The hot savepoint.
        now: Of this driver.
        before: The last heartbeat of the run that took the savepoint; None if it is not known.
    """
    findings = check_version(manifest.spark_version, now.spark)
    why = findings[0].remedy if findings else "A newer Spark reads an older one's files."
    spark = _row("Spark", manifest.spark_version, now.spark, why)
    python = before.python_version if before is not None and before.python_version else _UNKNOWN
    return [
        replace(spark, verdict="incompatible" if findings else "compatible"),
        _row("Python", python, now.python, _OTHER_PYTHON),
    ]


def compare(
    query: JobQuery,
    manifest: Manifest,
    given: Mapping[str, str],
    before: Heartbeat | None,
    *,
    elsewhere: bool = False,
) -> list[Compared]:
    """Return the rows for a query; none if the savepoint does not hold it.

    Args:
        query: As the new version starts it.
        manifest: The hot savepoint.
        given: Settings that its session has, without defaults.
        before: The last heartbeat of the run that took the savepoint; None if it is not known.
        elsewhere: Its sources reach another cluster, where topics may have other names: the plan that was
            approved shows how they move.
    """
    snapshot = manifest.query(query.name)
    if snapshot is None:
        return []
    status = before.queries.get(query.name) if before is not None else None
    mode = status.output_mode if status is not None and status.output_mode else _UNKNOWN
    rows = [
        *_confs(snapshot, given),
        *([] if elsewhere else _sources(query, snapshot)),
        _row("output mode", mode, query.output_mode, _OTHER_MODE),
        _row("sink", snapshot.sink or _UNKNOWN, query.sink.name or _UNKNOWN, _OTHER_SINK),
        *_lineages(query, snapshot),
    ]
    return [replace(one, query=query.name) for one in rows]


def with_state(compared: list[Compared], found: RehearsedQuery) -> list[Compared]:
    """Add the rehearsal's result for the state."""
    if not compared or not found.batches or found.state_schema == "none":
        return compared
    changed = "; ".join(found.state_changes) or "not in its columns"
    why = f"{changed[0].upper()}{changed[1:]}. {_ACCEPTED}" if found.state_schema == "changed" else ""
    return [*compared, _row_of_state(compared, found.state_schema, "compatible", why)]


def with_refused_state(compared: list[Compared], error: BaseException) -> list[Compared]:
    """Add Spark's reason if it refused the state; nothing for any other error."""
    match = _SCHEMAS.search(f"{error}\n")
    if match is None or not compared:
        return compared
    old, new = (match["one"], match["other"]) if match["one"] else (match["old"], match["new"])
    if _NEW_FIRST in str(error):
        old, new = new, old
    changes = state_columns.difference({"": state_columns.of_text(old)}, {"": state_columns.of_text(new)})
    side = f"In the {match['side']}: " if match["side"] else ""
    why = f"{side}{'; '.join(changes) or 'it differs'}. Spark does not accept it."
    return [*compared, _row_of_state(compared, "refused", "incompatible", why)]


def _row_of_state(compared: list[Compared], now: str, verdict: Verdict, why: str) -> Compared:
    before, query = "as saved", compared[0].query
    return Compared(query=query, what="state schema", before=before, now=now, verdict=verdict, reason=why)


def _row(what: str, before: str, now: str, reason: str = "") -> Compared:
    """Return a row that is no obstacle; its reason counts only where something is known to differ."""
    reason = reason if before not in (now, _UNKNOWN) else ""
    return Compared(what=what, before=before, now=now, verdict="compatible", reason=reason)


def _confs(snapshot: QuerySnapshot, given: Mapping[str, str]) -> Iterator[Compared]:
    """Yield the settings that people ask about, and those that do not fit."""
    pinned = snapshot.pinned_confs
    for name in (SHUFFLE_PARTITIONS, PROVIDER):
        if name in pinned and not check_confs(snapshot.name, {name: pinned[name]}, given):
            yield _row(name, pinned[name], pinned[name])
    for finding in check_confs(snapshot.name, pinned, given):
        name = finding.what.partition(" of ")[0]
        verdict: Verdict = "needs repartition" if name == SHUFFLE_PARTITIONS else "incompatible"
        yield Compared(
            what=name, before=finding.saved, now=finding.found, verdict=verdict, reason=finding.remedy
        )


def _lineages(query: JobQuery, snapshot: QuerySnapshot) -> Iterator[Compared]:
    """Yield the lineage of a transactional sink if both versions name one."""
    known = snapshot.sinks.lineages if snapshot.sinks is not None else ()
    if query.sink.lineage is None or not known:
        return
    own = query.sink.lineage or snapshot.query_id
    before = ", ".join(one.lineage for one in known)
    same = any(is_lineage_of(one.lineage, own) for one in known)
    yield Compared(
        what="sink lineage",
        before=before,
        now=before if same else own,
        verdict="compatible" if same else "incompatible",
        reason="" if same else _OTHER_LINEAGE,
    )


def _sources(query: JobQuery, snapshot: QuerySnapshot) -> Iterator[Compared]:
    """Yield a row for each Kafka source of either; other sources do not name what they read."""
    before = {key: sorted(position.offsets.topics) for key, position in snapshot.kafka.items()}
    version = next((v for v in _LOG_VERSIONS if all(_is_of(key, v) for key in before)), 1)
    now = {source.key(version): source for source in query.sources if source.is_kafka}
    for key in sorted(before.keys() | now.keys()):
        topics = _topics(now[key]) if key in now else None
        found = ", ".join(topics) if topics else "none" if key not in now else "by a pattern"
        verdict, reason = _judged(before.get(key), topics, is_read=key in now)
        yield Compared(
            what=f"source {key}",
            before=", ".join(before.get(key, ())) or "none",
            now=found,
            verdict=verdict,
            reason=reason,
        )


def _judged(before: list[str] | None, topics: list[str] | None, *, is_read: bool) -> tuple[Verdict, str]:
    if before is None:
        return "needs a new source identity", "The savepoint has no position of it: change sources first."
    if not is_read:
        return "needs a new source identity", "Its position would be given up: change sources first."
    if topics is not None and topics != before:
        return "needs a new source identity", "Other topics than those of its position."
    return "compatible", ""


def _is_of(key: str, version: int) -> bool:
    return key.isdigit() == (version == 1)


def _topics(source: StreamingSource) -> list[str] | None:
    """Return the topics that a source names; None for a pattern or an assignment."""
    named = source.option("subscribe")
    return sorted(topic.strip() for topic in named.split(",")) if named else None


def require_no_obstacle(query: str, compared: Iterable[Compared]) -> None:
    """Check that nothing keeps the new version from continuing.

    Raises:
        FlinkstyleError: ``VERSION_INCOMPATIBLE``, naming all that does.
    """
    found = [
        f"{one.what} is {one.before} there and {one.now} here: {one.reason}"
        for one in compared
        if one.verdict == "incompatible"
    ]
    if found:
        raise VERSION_INCOMPATIBLE.error(query=query, found=" ".join(found))
