"""State in more partitions, in RocksDB, or changed, as a part of an upgrade: the settings of the new driver.

The driver writes the state before it starts (``agent.run.repartition``): that of the hot savepoint, on which
it rehearses, and in the window that of the savepoint with which the old version stopped.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.checkpoint.stores_in_use import SHUFFLE_PARTITIONS
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint.compat import (
    PROVIDER,
    REPARTITION,
    ROCKSDB,
    ROCKSDB_CLASS,
    SOURCE_NAMES,
    STATE_PROVIDER,
    StateChanges,
    repartitioned_id,
    source_names_asked,
    with_state_changes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.spec import JobSpec
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository


_NAMED: Final = re.compile(r"[\w.]+:\w+")


def with_partitions(spec: JobSpec, partitions: int | None) -> JobSpec:
    """Return the job with another number of shuffle partitions; None: as it is.

    Raises:
        BadInputError: If it is no number of partitions.
    """
    if partitions is None:
        return spec
    if partitions < 1:
        raise BadInputError(
            f"A number of shuffle partitions from 1 on was expected, found {partitions}.",
            state_after="Nothing was started or stopped.",
            remedy="Correct shuffle_partitions.",
        )
    asked = str(partitions)
    return replace(spec, conf={**spec.conf, SHUFFLE_PARTITIONS: asked, REPARTITION: asked})


def with_provider(spec: JobSpec, provider: str | None) -> JobSpec:
    """Return the job with its state moved to another provider; None: as it is.

    Raises:
        BadInputError: If it is none that state can be moved to.
    """
    if not provider:
        return spec
    if provider != ROCKSDB:
        raise BadInputError(
            f"A provider to move the state to was expected, {ROCKSDB}, found {provider!r}.",
            state_after="Nothing was started or stopped.",
            remedy="Correct state_provider.",
        )
    return replace(spec, conf={**spec.conf, PROVIDER: ROCKSDB_CLASS, STATE_PROVIDER: ROCKSDB})


def with_changes(
    spec: JobSpec, changes: Mapping[str, Any] | str | None, *, asked: str, before: int
) -> JobSpec:
    """Return the job with changes of its state, for savepoints from before this upgrade; None: as it is.

    Args:
        spec: The new version.
        changes: ``module:name``; or ready-made ones as data, by operator, or by query and operator, also as
            JSON.
        asked: Key of the request, the same for every try.
        before: The generation that runs now.

    Raises:
        BadInputError: If it is neither.
    """
    if not changes:
        return spec
    text = changes if isinstance(changes, str) else json.dumps(dict(changes))
    if not (_NAMED.fullmatch(text) or _is_object(text)):
        raise BadInputError(
            f"Changes of state were expected as module:name or as a JSON object, found {text!r}.",
            state_after="Nothing was started or stopped.",
            remedy="Correct state_changes.",
        )
    entry = StateChanges(asked=asked, up_to=before, changes=text)
    return replace(spec, conf=with_state_changes(spec.conf, entry))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def undone(old: JobSpec, new: JobSpec, saved: Manifest) -> JobSpec:
    """Return the old version as it can continue where the new one is.

    It has its own number of partitions and its own names of sources; state that has moved to RocksDB stays
    there.

    Args:
        old: What ran before.
        new: The version to go back from.
        saved: What the old one stopped with.
    """
    if STATE_PROVIDER in new.conf:
        old = replace(old, conf={**old.conf, PROVIDER: ROCKSDB_CLASS})
    if SOURCE_NAMES in new.conf:
        back = {
            query: {name: source for source, name in names.items()}
            for query, names in source_names_asked(new.conf).items()
        }
        old = replace(old, conf={**old.conf, SOURCE_NAMES: json.dumps(back)})
    numbers = {query.pinned_confs.get(SHUFFLE_PARTITIONS) for query in saved.queries} - {None}
    if REPARTITION not in new.conf or len(numbers) != 1:
        return old
    return replace(old, conf={**old.conf, REPARTITION: str(numbers.pop())})


def begun_at(
    batches: Mapping[str, int], spec: JobSpec, savepoint_id: str, repository: SavepointRepository
) -> dict[str, int]:
    """Return the batches that a new version begins behind, with empty ones that a repartition has made.

    Args:
        batches: Query name -> last batch of the old version.
        spec: The new version.
        savepoint_id: What the old one stopped with.
        repository: The job's savepoints.
    """
    asked = spec.conf.get(REPARTITION, "")
    made = repository.find(repartitioned_id(savepoint_id, int(asked))) if asked.isdigit() else None
    return {**batches, **{query.name: int(query.batch_id) for query in (made.queries if made else ())}}
