"""A savepoint's state in another number of partitions, spread by this driver's Spark before it starts."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.run import scratch
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint.compat import REPARTITION, repartitioned_id

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.run.driver import Driver
    from airflow_flinkstyle.savepoint.manifest import Manifest

log = logging.getLogger(__name__)


def as_asked(driver: Driver, manifest: Manifest) -> Manifest:
    """Return the savepoint with the number of partitions that the session asks for.

    That is another savepoint, published once all keys were compared; an earlier try's is found again.

    Raises:
        BadInputError: If what is asked for is no number.
        RepartitionError: If Spark cannot, or a key differs afterwards, no savepoint is made then; or if a
            planned batch would get another number.
    """
    spark = driver.queries.spark
    asked = spark.conf.get(REPARTITION, "")
    if not asked:
        return manifest
    if not asked.isdigit() or int(asked) < 1:
        raise BadInputError(
            f"{REPARTITION} was expected to be a number from 1 on, found {asked!r}.",
            state_after="No query was started.",
            remedy="Correct it, or leave it out.",
        )
    from airflow_flinkstyle.state.repartition import repartition, to_repartition

    partitions = int(asked)
    if not to_repartition(manifest, partitions):
        return manifest
    found = driver.repository.find(repartitioned_id(manifest.savepoint_id, partitions))
    if found is not None:
        return found
    with scratch.own_scratch(driver) as location:
        done = repartition(
            spark,
            driver.repository,
            manifest,
            partitions,
            location,
            lambda place: scratch.open_at(spark, place),
        )
    log.info(
        "Savepoint %s has %d partitions, %d keys compared: %s",
        *(manifest.savepoint_id, partitions, done.keys, done.savepoint.savepoint_id),
    )
    return done.savepoint
