"""What a query that is about to be rehearsed changes of the one in the savepoint, as a table for people.

What cannot be continued is refused by the guard, by Spark's checks of the state, or by ``compat``; this says
why, beside what did not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.protocol.rehearsal_records import Compared, RehearsedQuery

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.agent.job_query import JobQuery
    from airflow_flinkstyle.agent.jvm.sources import Source
    from airflow_flinkstyle.protocol.rehearsal_records import Verdict
    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot

_PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_LOG_VERSIONS = (1, 2)


def compare(
    query: JobQuery, manifest: Manifest, spark_version: str, *, elsewhere: bool = False
) -> tuple[Compared, ...]:
    """Return what was compared; nothing for a query that the savepoint does not hold.

    Args:
        query: As the new version starts it.
        manifest: The hot savepoint, whose settings the session was found to fit.
        spark_version: Of this driver.
        elsewhere: Its sources reach another cluster, where topics may have other names: the plan that was
            approved says how they move.
    """
    snapshot = manifest.query(query.name)
    if snapshot is None:
        return ()
    pinned = snapshot.pinned_confs
    rows = [
        _same("Spark", manifest.spark_version, spark_version, "A newer Spark reads an older one's files.")
    ]
    rows += [_same(name, pinned[name], pinned[name]) for name in (_PARTITIONS, _PROVIDER) if name in pinned]
    rows += [] if elsewhere else _sources(query, snapshot)
    rows.append(_same("sink", snapshot.sink or "unknown", query.sink.name or "unknown", _OTHER_SINK))
    return tuple(rows)


_OTHER_SINK = "What the old sink holds stays there; the new one begins behind it."


def with_state(compared: tuple[Compared, ...], found: RehearsedQuery | None) -> tuple[Compared, ...]:
    """Add what the rehearsal says of the state; None: it failed."""
    if not compared or found is None or not found.batches or found.state_schema == "none":
        return compared
    changed = found.state_schema == "changed"
    why = "Spark accepted the change; the old version may not be able to read it back." if changed else ""
    state = Compared(
        what="state schema", before="as saved", now=found.state_schema, verdict="compatible", reason=why
    )
    return (*compared, state)


def _same(what: str, before: str, now: str, reason: str = "") -> Compared:
    reason = reason if before != now else ""
    return Compared(what=what, before=before, now=now, verdict="compatible", reason=reason)


def _sources(query: JobQuery, snapshot: QuerySnapshot) -> Iterator[Compared]:
    """Yield a row for each Kafka source of either; others do not tell what they read."""
    before = {key: sorted(position.offsets.topics) for key, position in snapshot.kafka.items()}
    version = next((v for v in _LOG_VERSIONS if all(_is_of(key, v) for key in before)), 1)
    now = {source.key(version): source for source in query.sources if source.is_kafka}
    for key in sorted(before.keys() | now.keys()):
        said = _topics(now[key]) if key in now else None
        found = ", ".join(said) if said else "none" if key not in now else "by a pattern"
        verdict, reason = _judged(before.get(key), said, is_read=key in now)
        yield Compared(
            what=f"source {key}",
            before=", ".join(before.get(key, ())) or "none",
            now=found,
            verdict=verdict,
            reason=reason,
        )


def _judged(before: list[str] | None, said: list[str] | None, *, is_read: bool) -> tuple[Verdict, str]:
    if before is None:
        return "needs a new source identity", "The savepoint has no position of it: change sources first."
    if not is_read:
        return "needs a new source identity", "Its position would be given up: change sources first."
    if said is not None and said != before:
        return "needs a new source identity", "Other topics than those of its position."
    return "compatible", ""


def _is_of(key: str, version: int) -> bool:
    return key.isdigit() == (version == 1)


def _topics(source: Source) -> list[str] | None:
    """Return the topics that a source names; None for a pattern or an assignment."""
    named = source.option("subscribe")
    return sorted(topic.strip() for topic in named.split(",")) if named else None
