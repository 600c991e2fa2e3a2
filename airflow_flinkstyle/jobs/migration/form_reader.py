"""From the form of a migration to the value that is approved, stored, and applied by every task."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.answers.mirror import isolation_of, mirror_if_named, names_of
from airflow_flinkstyle.jobs.answers.strategies import savepoint_offsets, strategy_rules
from airflow_flinkstyle.jobs.answers.values import is_true, seconds_or_none
from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.migration.approved import ClusterRef, Migration
from airflow_flinkstyle.kafka.fence.fences import parse_fence
from airflow_flinkstyle.kafka.login.driver import require_no_secrets
from airflow_flinkstyle.kafka.policies import parse_policies
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.jobs.migration.form import MigrationForm
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository


def read_form(
    form: MigrationForm,
    *,
    servers: Callable[[str], str],
    repository: SavepointRepository,
    producer_switch: str,
) -> Migration:
    """Read the form: files and savepoints that it names become the offsets that they hold now.

    Args:
        form: What a person said.
        servers: Returns the ``bootstrap.servers`` of a cluster's connection.
        repository: The job's savepoints.
        producer_switch: What holds producers if the form does not say.

    Raises:
        BadInputError: If something cannot be understood, or a secret would be recorded.
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
