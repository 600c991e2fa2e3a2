"""A savepoint rewritten as the session asks, by this driver before it starts a query.

Its state goes to RocksDB from Spark's default provider, is changed as an upgrade has asked, or gets other
partitions; its sources get other names.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.run import scratch
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.rewrite.identity import are_called, change_sources
from airflow_flinkstyle.rewrite.source_changes import RenameSources
from airflow_flinkstyle.savepoint.compat import (
    REPARTITION,
    ROCKSDB,
    SOURCE_NAMES,
    STATE_CHANGES,
    STATE_PROVIDER,
    repartitioned_id,
    source_names_asked,
    state_changes_asked,
    state_changes_due,
)

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.run.driver import Driver
    from airflow_flinkstyle.savepoint.manifest import Manifest

log = logging.getLogger(__name__)


def as_asked(driver: Driver, manifest: Manifest) -> Manifest:
    """Return the savepoint with the provider, changes, partitions and source names that the session asks for.

    Each is another savepoint, published once all keys were compared; one of an earlier try is used again.

    Raises:
        BadInputError: If what is asked for is no number, no provider, no changes, or no names.
        FlinkstyleError: ``SOURCE_CHANGE`` if a query has other sources than are named.
        FlinkstyleError: ``STATE_TRANSFORM`` if the state cannot be moved or changed, or a key differs
            afterwards; no savepoint is made then.
        FlinkstyleError: ``REPARTITION`` for the same of partitions; or if a planned batch would get another
            number.
    """
    return _named(driver, _repartitioned(driver, _changed(driver, _in_provider(driver, manifest))))


def _in_provider(driver: Driver, manifest: Manifest) -> Manifest:
    spark = driver.queries.spark
    asked = spark.setting(STATE_PROVIDER)
    if not asked:
        return manifest
    if asked != ROCKSDB:
        raise BadInputError(
            f"{STATE_PROVIDER} was expected to be {ROCKSDB}, found {asked!r}.",
            state_after="No query was started.",
            remedy="Correct it, or leave it out: state moves to RocksDB only.",
        )
    with scratch.own_scratch(driver) as location:
        moved = spark.in_rocksdb(driver.repository, manifest, location)
    if moved is not manifest:
        log.info(
            "Savepoint %s has its state in RocksDB, all keys compared: %s",
            *(manifest.savepoint_id, moved.savepoint_id),
        )
    return moved


def _changed(driver: Driver, manifest: Manifest) -> Manifest:
    spark = driver.queries.spark
    asked = spark.setting(STATE_CHANGES)
    if not asked:
        return manifest
    try:
        due = state_changes_due(manifest, state_changes_asked({STATE_CHANGES: asked}))
    except ValueError as error:
        raise BadInputError(
            f"{STATE_CHANGES} was expected as an upgrade writes it, found {asked!r}.",
            state_after="No query was started.",
            remedy="Leave it out, and give an upgrade state_changes.",
        ) from error
    for changes in due:
        with scratch.own_scratch(driver) as location:
            changed = spark.state_changed(driver.repository, manifest, changes, location)
        if changed is not manifest:
            log.info(
                "Savepoint %s has its state changed by %s, all keys compared: %s",
                *(manifest.savepoint_id, changes.changes, changed.savepoint_id),
            )
        manifest = changed
    return manifest


def _named(driver: Driver, manifest: Manifest) -> Manifest:
    """Rename the sources of queries, unless they have these names already."""
    wanted = source_names_asked({SOURCE_NAMES: driver.queries.spark.setting(SOURCE_NAMES)})
    if not wanted:
        return manifest
    changes = [
        RenameSources(query=query.name, names=wanted[query.name])
        for query in manifest.queries
        if query.name in wanted and not are_called(query, wanted[query.name], driver.repository)
    ]
    return change_sources(manifest, driver.repository, changes) if changes else manifest


def _repartitioned(driver: Driver, manifest: Manifest) -> Manifest:
    spark = driver.queries.spark
    asked = spark.setting(REPARTITION)
    if not asked:
        return manifest
    if not asked.isdigit() or int(asked) < 1:
        raise BadInputError(
            f"{REPARTITION} was expected to be a number from 1 on, found {asked!r}.",
            state_after="No query was started.",
            remedy="Correct it, or leave it out.",
        )
    from airflow_flinkstyle.state.repartition import to_repartition

    partitions = int(asked)
    if not to_repartition(manifest, partitions):
        return manifest
    found = driver.repository.find(repartitioned_id(manifest.savepoint_id, partitions))
    if found is not None:
        return found
    with scratch.own_scratch(driver) as location:
        moved, keys = spark.repartitioned(driver.repository, manifest, partitions, location)
    log.info(
        "Savepoint %s has %d partitions, %d keys compared: %s",
        *(manifest.savepoint_id, partitions, keys, moved.savepoint_id),
    )
    return moved
