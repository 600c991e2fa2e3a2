"""Changes of state that an upgrade asks for, by name or as data: find them, and apply them to a savepoint."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.savepoint.compat import changed_id
from airflow_flinkstyle.state.edits import READY_MADE, as_change, described, from_data
from airflow_flinkstyle.state.errors import (
    STATE_TRANSFORM_NOT_FOR_QUERIES,
    STATE_TRANSFORM_NOT_FOUND,
    STATE_TRANSFORM_NOT_READY_MADE,
)
from airflow_flinkstyle.state.query_copy import the_query
from airflow_flinkstyle.state.transform import CopiedQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_flinkstyle.savepoint.compat import StateChanges
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.state.edits import Change, OperatorChange
    from airflow_flinkstyle.state.scratch import OpenPlace

    ByOperator = dict[int, OperatorChange]


def with_asked_changes(
    spark: SparkSession,
    repository: SavepointRepository,
    manifest: Manifest,
    asked: StateChanges,
    scratch: str,
    open_place: OpenPlace,
) -> Manifest:
    """Return the savepoint with the state of its queries changed, one savepoint for each that is changed.

    Args:
        spark: As in ``transform_state``.
        repository: Where the savepoint is, and the new ones go; those of an earlier try are reused.
        manifest: The savepoint.
        asked: The changes.
        scratch: Location for the copies, reached by driver and executors.
        open_place: Opens the store at a location.

    Raises:
        FlinkstyleError: ``STATE_TRANSFORM`` if there are no such changes, or as ``transform_state``.
    """
    for name, changes in by_query(manifest, asked.changes).items():
        if asked.mark(name) in manifest.evidence:
            continue
        what = json.dumps([asked.asked, {n: described(change) for n, change in changes.items()}])
        new_id = changed_id(manifest.savepoint_id, name, what)
        found = repository.find(new_id)
        if found is None:
            place = f"{scratch}/{hashlib.sha256(new_id.encode()).hexdigest()[:8]}"
            work = CopiedQuery.on(spark, repository, manifest, the_query(manifest, name), place, open_place)
            found = work.changed(new_id, changes, None, {asked.mark(name): asked.changes}).savepoint
        manifest = found
    return manifest


def by_query(manifest: Manifest, text: str) -> dict[str, ByOperator]:
    """Return the changes by query, each by operator.

    Args:
        manifest: The savepoint, whose queries they are for.
        text: ``module:name`` of a dict, or of a function that returns one; or such a dict as JSON, with
            ready-made changes. Its keys are numbers of operators, or names of queries with such dicts.

    Raises:
        FlinkstyleError: ``STATE_TRANSFORM`` if it is not that.
    """
    given = json.loads(text) if text.lstrip().startswith("{") else _named(text)
    if not isinstance(given, Mapping) or not given:
        raise STATE_TRANSFORM_NOT_FOUND.error(text=text, found=repr(given))
    if all(str(key).isdigit() for key in given):
        if len(manifest.queries) != 1:
            names = ", ".join(query.name for query in manifest.queries)
            raise STATE_TRANSFORM_NOT_FOR_QUERIES.error(text=text, names=names)
        given = {manifest.queries[0].name: given}
    if not all(isinstance(changes, Mapping) for changes in given.values()):
        raise STATE_TRANSFORM_NOT_FOUND.error(text=text, found=repr(given))
    return {
        str(name): {int(number): _of_operator(change) for number, change in changes.items()}
        for name, changes in given.items()
    }


def _named(text: str) -> Any:  # noqa: ANN401 - a user's own value
    """Return the value of a name in a module; if it is a function, what it returns."""
    module, _, name = text.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
        return found() if callable(found) else found
    except Exception as error:  # the module is a user's: it may raise anything
        raise STATE_TRANSFORM_NOT_FOUND.error(text=text, found=f"{type(error).__name__}: {error}") from error


def _of_operator(given: Any) -> OperatorChange:  # noqa: ANN401 - as people write it
    if isinstance(given, Mapping) and "does" not in given:
        return {str(name): _change(one) for name, one in given.items()}
    return _change(given)


def _change(given: Any) -> Change:  # noqa: ANN401 - a change, several, or data
    if isinstance(given, Mapping):
        return from_data(given)
    if isinstance(given, list | tuple):
        return as_change([_change(one) for one in given])
    if not callable(given):
        raise STATE_TRANSFORM_NOT_READY_MADE.error(known=", ".join(READY_MADE), found=repr(given))
    return as_change(given)
