"""What a person says about a migration, and what that means: read once, before the approval."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.answers.mirror import isolation_of, mirror_if_named, names_of
from airflow_flinkstyle.jobs.answers.strategies import savepoint_offsets, strategy_rules
from airflow_flinkstyle.jobs.answers.values import seconds_or_none
from airflow_flinkstyle.jobs.migration.approved import ClusterRef, Migration
from airflow_flinkstyle.jobs.migration.context import CutoverSettings
from airflow_flinkstyle.kafka.fence.fences import parse_fence
from airflow_flinkstyle.kafka.login.driver import require_no_secrets
from airflow_flinkstyle.kafka.policies import parse_policies

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.hooks.job import StreamingJobHook


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationForm:
    """What a person says about a migration; the operators' arguments by the same names."""

    job: str
    source_kafka_conn_id: str
    target_kafka_conn_id: str
    mirror: Mapping[str, Any] | None = None
    """``MirrorSettings`` by its fields' names; without aliases no position can be proved."""
    rename: Mapping[str, str] | None = None
    """Source topic -> target topic, or several with commas, beyond what the mirror's policy says."""
    way: str = "proved"
    """How sources move: ``proved``, ``new_identity`` or ``producers_first``."""
    start: str | Mapping[str, Any] | None = None
    """Where what begins anew begins, as ``kafka.start.text`` reads it."""
    topology: str = "refuse"
    """``repartitioned``: topics whose partitions do not fit one by one begin at ``start``."""
    sources: Mapping[str, Mapping[str, Any]] | None = None
    """``query/source`` -> any of ``way``, ``start``, ``topology``, where they differ."""
    fence: str | Mapping[str, Any] = "passive"
    """``acl``: producers are also kept away by ACL; see ``kafka.fence.fences.parse_fence``."""
    fence_spare: Sequence[str] | str = ()
    """Principals that an ``acl`` fence leaves alone."""
    group: str | None = None
    """Consumer group whose offsets on the target are set after the move."""
    isolation: str = "read_uncommitted"
    """The job's own ``kafka.isolation.level``; this is Spark's default."""
    allow: Sequence[str] | str = ("exact",)
    producer_switch: str | None = None
    script_servers: str | None = None
    """``kafka.bootstrap.servers`` as the script writes it; None: as the source's connection has it."""
    kafka_options: Mapping[str, str] | None = None
    """More options of Spark's Kafka source on the target; recorded, so no secrets."""
    timeouts: Mapping[str, float] | None = None
    """``CutoverSettings`` by its fields' names."""
    spark_conn_id: str | None = None
    """Where the next driver runs; None: where the job runs now."""
    back: bool = False
    """Producers know the two clusters by each other's names: it reverses an earlier migration."""

    def told(self) -> dict[str, Any]:
        """Return the answers as plain values, the same for equal answers."""
        values: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        return values


def read_form(hook: StreamingJobHook, form: MigrationForm) -> Migration:
    """Read the form: files and savepoints that it names become the offsets that stand in them now.

    Raises:
        BadInputError: If something cannot be understood, or a secret would be recorded.
    """
    source, target = (
        ClusterRef(conn_id=conn_id, servers=hook.kafka(conn_id).bootstrap_servers)
        for conn_id in (form.source_kafka_conn_id, form.target_kafka_conn_id)
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
            savepoint=savepoint_offsets(hook.repository(form.job)),
        ),
        isolation=isolation_of(form.isolation),
        allow=parse_policies(form.allow),
        fence=parse_fence(form.fence, spare=names_of(form.fence_spare)),
        group=str(form.group) if form.group else None,
        producer_switch=hook.switch_name(form.producer_switch),
        script_servers=form.script_servers or source.servers,
        kafka_options=options,
        settings=_settings(form.timeouts or {}),
        spark_conn_id=form.spark_conn_id or None,
        back=form.back,
    )


def _settings(timeouts: Mapping[str, object]) -> CutoverSettings:
    known = {item.name for item in fields(CutoverSettings)}
    if wrong := sorted(set(timeouts) - known):
        raise BadInputError(
            f"Time-outs among {sorted(known)} were expected, found {wrong}.",
            state_after="Nothing was changed.",
            remedy="Correct the operator's timeouts.",
        )
    given = {name: seconds_or_none(f"time-out {name}", value) for name, value in timeouts.items()}
    return CutoverSettings(**{name: value for name, value in given.items() if value is not None})
