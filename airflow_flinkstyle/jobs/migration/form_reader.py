"""From a form to a migration: open answers are filled in from the job and the clusters, then it is read."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.answers.rules import (
    NO_ALIAS,
    isolation_of,
    mirror_if_named,
    names_of,
    savepoint_offsets,
    strategy_rules,
)
from airflow_flinkstyle.jobs.answers.values import is_true, seconds_or_none
from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.errors import JobNotRunningError
from airflow_flinkstyle.jobs.migration.approved import ClusterRef, Migration
from airflow_flinkstyle.jobs.stopped.last_run import recorded_launch
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.fence.fences import parse_fence
from airflow_flinkstyle.kafka.login import named_connections, require_no_secrets
from airflow_flinkstyle.kafka.mirror.found import UNNAMED, find_mirror
from airflow_flinkstyle.kafka.policies import parse_policies
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.types import id_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Self

    from airflow_flinkstyle.jobs.migration.form import MigrationForm
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.kafka.mirror.found import FoundMirror
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.protocol.records import KafkaOverride
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

log = logging.getLogger(__name__)

_SERVERS: Final = "kafka.bootstrap.servers"
_NOTHING: Final = "Nothing was changed; the job keeps running."
_ISOLATION: Final = "read_uncommitted"
"""Spark's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSource:
    """A Kafka source of the running job."""

    cluster_id: str | None
    topics: tuple[str, ...]
    servers: str | None
    """As it reads now; None while the query waits."""
    script_servers: str | None
    """As the script writes it; None if that is not known."""
    isolation: str | None
    conn_id: str | None
    """The connection that the start gave it; None if it reads as its script says."""


class FindMirror(Protocol):
    """Looks for the mirrors between the clusters of two connections, as ``kafka.mirror.found`` does."""

    def __call__(self, source: str, target: str, topics: Sequence[str], *, offsets_topic: str) -> FoundMirror:
        """Return how the mirror is set up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUps:
    """Find answers that a form leaves open; connections go by their names."""

    servers: Callable[[str], str]
    """Returns ``bootstrap.servers`` of a connection."""
    cluster_id: Callable[[str], str | None]
    """Asks the cluster of a connection for its id."""
    find_mirror: FindMirror
    allowed: Sequence[str]
    """The connections that jobs may use; empty if none are listed."""

    @classmethod
    def of(cls, kafka: Callable[[str], KafkaCluster], allowed: Sequence[str]) -> Self:
        """Return look-ups that ask the clusters themselves."""

        def find(source: str, target: str, topics: Sequence[str], *, offsets_topic: str) -> FoundMirror:
            return find_mirror(kafka(source), kafka(target), topics, offsets_topic=offsets_topic)

        return cls(
            servers=lambda conn_id: kafka(conn_id).bootstrap_servers,
            cluster_id=lambda conn_id: describe(kafka(conn_id), ()).cluster_id,
            find_mirror=find,
            allowed=allowed,
        )


def fill_in(form: MigrationForm, runs: JobView, look_ups: LookUps) -> MigrationForm:
    """Return the form with its open answers filled in from the job and the clusters.

    Raises:
        BadInputError: If an answer is missing, and more than one thing, or nothing, is found in its place.
        FlinkstyleError: If a cluster that must be asked cannot be.
    """
    sources = tuple(_sources(runs))
    if not form.target_kafka_conn_id or not sources:
        return form  # what is missing is named where the form is read
    if not form.source_kafka_conn_id:
        found = _connection(form, sources, look_ups)
        log.info("The cluster to leave: connection %s", found)
        form = replace(form, source_kafka_conn_id=found)
    old = form.source_kafka_conn_id or ""
    if form.script_servers and form.isolation and not _lacks_mirror(form):
        return form
    there = _of_cluster(sources, old, look_ups)
    return replace(
        form,
        script_servers=form.script_servers or _one("script_servers", [one.script_servers for one in there]),
        isolation=form.isolation or _one("isolation", [one.isolation for one in there]) or _ISOLATION,
        mirror=_mirror(form, old, look_ups, sorted({topic for one in there for topic in one.topics})),
    )


# --- the job ----------------------------------------------------------------------------------


def _sources(runs: JobView) -> Iterator[JobSource]:
    last = runs.board.current_heartbeat()
    if last is None:
        return
    rules = _rules(runs)
    for query in last.queries.values():
        for name, identity in query.sources.items():
            reading = query.reads.get(name)
            servers = reading.servers if reading is not None else None
            rule = next((rule for rule in rules if rule.options.get(_SERVERS) == servers), None)
            yield JobSource(
                cluster_id=identity.cluster_id,
                topics=tuple(identity.topic_ids),
                servers=servers,
                script_servers=rule.servers if rule is not None and servers is not None else servers,
                isolation=reading.isolation if reading is not None else None,
                conn_id=next(iter(named_connections([rule.options])), None) if rule is not None else None,
            )


def _rules(runs: JobView) -> tuple[KafkaOverride, ...]:
    """Return what the start set over the script's own options of sources."""
    try:
        spec, _ = recorded_launch(runs)
    except JobNotRunningError:
        return ()
    return tuple(rule for rule in spec.overrides if rule.role == "source")


def _of_cluster(sources: Sequence[JobSource], conn_id: str, look_ups: LookUps) -> list[JobSource]:
    """Return the sources that read a cluster; all if they read only one: the pre-flight compares its id."""
    if len({one.cluster_id for one in sources}) < 2:
        return list(sources)
    cluster_id = look_ups.cluster_id(conn_id)
    return [one for one in sources if one.cluster_id == cluster_id]


# --- the cluster to leave ---------------------------------------------------------------------


def _connection(form: MigrationForm, sources: Sequence[JobSource], look_ups: LookUps) -> str:
    """Return the connection of the cluster that the job reads and that is not the one to move to."""
    target = look_ups.cluster_id(form.target_kafka_conn_id)
    candidates = {one.cluster_id for one in sources} - {target}
    if len(candidates) != 1:
        read = ", ".join(sorted(map(id_words, candidates))) or f"none but {target}, where it is to go"
        raise _missing(form, "source_kafka_conn_id", f"job {form.job} reads the clusters {read}")
    (cluster_id,) = candidates
    given = {one.conn_id for one in sources if one.cluster_id == cluster_id and one.conn_id}
    if len(given) == 1:
        return given.pop()
    servers = {one.servers for one in sources if one.cluster_id == cluster_id}
    others = [conn_id for conn_id in look_ups.allowed if conn_id != form.target_kafka_conn_id]
    fitting = [conn_id for conn_id in others if _leads_to(look_ups, conn_id, cluster_id, servers)]
    if not fitting:
        tried = ", ".join(others) or "none: kafka_connections of the flinkstyle connection lists no other"
        raise _missing(
            form, "source_kafka_conn_id", f"no connection to cluster {id_words(cluster_id)} among {tried}"
        )
    return fitting[0]  # several lead to the same cluster; the first that is listed


def _leads_to(look_ups: LookUps, conn_id: str, cluster_id: str | None, servers: set[str | None]) -> bool:
    """Return whether a connection leads to a cluster; one that does not answer does not."""
    try:
        return look_ups.servers(conn_id) in servers or look_ups.cluster_id(conn_id) == cluster_id
    except FlinkstyleError as error:
        log.info("Connection %s is not the cluster to leave: %s", conn_id, error.problem)
        return False


# --- the mirror -------------------------------------------------------------------------------


def _lacks_mirror(form: MigrationForm) -> bool:
    """Return whether positions are to be proved, and the mirror's aliases are not both named."""
    mirror, of_sources = form.mirror or {}, (form.sources or {}).values()
    proves = form.way == "proved" or any(rule.get("way") == "proved" for rule in of_sources)
    is_none = NO_ALIAS in (mirror.get("source_alias"), mirror.get("target_alias"))
    keeps_offsets = str(mirror.get("keeps_offsets") or False).lower() == "true"
    named = mirror.get("source_alias") and mirror.get("target_alias")
    return proves and not is_none and not keeps_offsets and not named


def _mirror(
    form: MigrationForm, old: str, look_ups: LookUps, topics: Sequence[str]
) -> Mapping[str, Any] | None:
    """Return the mirror's settings, its aliases and its policy as its own topics show them."""
    if not _lacks_mirror(form):
        return form.mirror
    given = dict(form.mirror or {})
    offsets_topic = str(given.get("offsets_topic") or "")
    found = look_ups.find_mirror(old, form.target_kafka_conn_id, topics, offsets_topic=offsets_topic)
    source = given.get("source_alias") or _one("source_alias", found.source_aliases)
    if source is None:
        return form.mirror  # there is no mirror: the pre-flight reports what that means
    named = found.target_aliases if len(found.target_aliases) == 1 else (UNNAMED,)
    target = given.get("target_alias") or named[0]
    policy = given.get("replication_policy") or found.replication_policy
    log.info("The mirror: %s -> %s, topics named by the policy %s", source, target, policy)
    return {**given, "source_alias": source, "target_alias": target, "replication_policy": policy}


def _one(name: str, found: Sequence[str | None]) -> str | None:
    """Return the only value that was found, None for none.

    Raises:
        BadInputError: If there are several.
    """
    values = sorted({value for value in found if value})
    if len(values) > 1:
        raise BadInputError(
            f"The answer {name} for a migration was left open, to be found; found {', '.join(values)}.",
            state_after=_NOTHING,
            remedy=f"Name one of them as {name}, in the form's section More or in migration={{...}}.",
        )
    return values[0] if values else None


def _missing(form: MigrationForm, name: str, found: str) -> BadInputError:
    return BadInputError(
        f"The answer {name} for the migration of job {form.job} was left open, to be found; but {found}.",
        state_after=_NOTHING,
        remedy=f"Name the connection of the cluster to leave as {name}, or list it in kafka_connections of "
        "the flinkstyle connection.",
    )


def read_form(
    form: MigrationForm,
    *,
    servers: Callable[[str], str],
    repository: SavepointRepository,
    producer_switch: str,
) -> Migration:
    """Read the form: files and savepoints that it names become the offsets that they hold now.

    Args:
        form: A person's answers.
        servers: Returns the ``bootstrap.servers`` of a cluster's connection.
        repository: The job's savepoints.
        producer_switch: What holds producers if the form names none.

    Raises:
        BadInputError: If an answer is not valid, or a secret would be recorded.
    """
    require_names(form)
    source, target = (
        ClusterRef(conn_id=conn_id, servers=servers(conn_id))
        for conn_id in (form.source_kafka_conn_id or "", form.target_kafka_conn_id)
    )
    options = dict(form.kafka_options or {})
    require_no_secrets(options)
    return Migration(
        job=form.job,
        source=source,
        target=target,
        mirror=mirror_if_named(form.mirror),
        rename=dict(form.rename or {}),
        strategies=strategy_rules(
            way=form.way,
            start=form.start,
            topology=form.topology,
            sources=form.sources,
            savepoint=savepoint_offsets(repository),
        ),
        isolation=isolation_of(form.isolation or "read_uncommitted"),
        allow=parse_policies(form.allow),
        fence=parse_fence(form.fence, spare=names_of(form.fence_spare)),
        group=str(form.group) if form.group else None,
        producer_switch=form.producer_switch or producer_switch,
        script_servers=form.script_servers or source.servers,
        kafka_options=options,
        settings=_settings(form.timeouts or {}),
        spark_conn_id=form.spark_conn_id or None,
        rehearse=_rehearse(
            form.rehearse_batches,
            form.rehearse_records,
            allow_untested=is_true("allow_untested", form.allow_untested),
        ),
        back=form.back,
    )


def _rehearse(batches: object, records: object, *, allow_untested: bool) -> Rehearse | None:
    try:
        asked = Rehearse(
            batches=int(str(batches)),
            records=int(str(records)),
            elsewhere=True,
            allow_untested=allow_untested,
        )
    except ValueError:
        asked = Rehearse(batches=-1)
    if asked.batches < 0 or asked.records < 1:
        raise _bad("rehearse_batches from 0 and rehearse_records from 1", f"{batches!r} and {records!r}")
    return asked if asked.batches else None


def require_names(form: MigrationForm) -> None:
    """Require both clusters, and no answer that the form has no field for.

    Raises:
        BadInputError: If a cluster is not named, or an answer has another name.
    """
    names = sorted({item.name for item in fields(form)} - {"job", "unknown"})
    if form.unknown:
        raise _bad(f"any of {', '.join(names)}", ", ".join(f"{n}={v!r:.99}" for n, v in form.unknown.items()))
    if not form.source_kafka_conn_id or not form.target_kafka_conn_id:
        found = f"{form.source_kafka_conn_id!r} and {form.target_kafka_conn_id!r}"
        raise _bad("source_kafka_conn_id and target_kafka_conn_id, two connections", found)


def _settings(timeouts: Mapping[str, object]) -> CutoverSettings:
    known = {item.name for item in fields(CutoverSettings)}
    if wrong := sorted(set(timeouts) - known):
        raise _bad(f"time-outs among {', '.join(sorted(known))}", ", ".join(wrong))
    given = {name: seconds_or_none(f"time-out {name}", value) for name, value in timeouts.items()}
    return CutoverSettings(**{name: value for name, value in given.items() if value is not None})


def _bad(expected: str, found: str) -> BadInputError:
    return BadInputError(
        f"The answers for a migration should be {expected}; found {found}.",
        state_after="Nothing was changed.",
        remedy="Correct the operator's migration={...} or the DAG's form.",
    )
