"""Whether a query that would begin anew has run in plain Spark: its script names that checkpoint.

The agent keeps checkpoints in places of its own, so Spark would not read the script's. The place is opened
by Spark's own client, with the session's settings, as plain Spark would have opened it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint.found import checkpoints_below, look_into
from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.protocol.errors import CheckpointFoundError
from airflow_flinkstyle.protocol.home import ADOPTED_KEY, AdoptedMark
from airflow_flinkstyle.protocol.query_records import MOST_SERVERS_CHARACTERS
from airflow_flinkstyle.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.spark import Spark
    from airflow_flinkstyle.storage.base import ObjectStore

_MOST_BESIDE = 5
"""How many checkpoints beside the one that was found a message names."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A checkpoint at the location that a script names."""

    where: str
    """How far it came, for messages."""
    adopted: AdoptedMark | None
    """Which job has adopted it, and continues from it."""


def require_none(
    query: JobQuery,
    *,
    job: str,
    left_behind: Collection[str],
    ran: Collection[str],
    elsewhere: Mapping[str, str],
) -> None:
    """Check that a query which begins anew leaves no checkpoint behind, unless the start names it.

    Args:
        query: About to start, without a checkpoint of the job.
        job: Its job's name, for the message.
        left_behind: Locations whose checkpoints this start leaves behind.
        ran: Queries that the script had started before.
        elsewhere: Declaration of another job's query -> the query and its job.

    Raises:
        CheckpointFoundError: If it does, or if the place cannot be read.
    """
    named = query.declared.named
    if not named:  # plain Spark too would begin anew at each start
        return
    location = named
    try:
        location = shown(query.session, named)
        other = elsewhere.get(query.declared.recorded().key)
        if other is not None and not _is_left_behind(left_behind, named, location):
            raise CheckpointFoundError.elsewhere(job, query.name, location, other, ran=ran)
        found = _found(query.session, named)
    except (StoreError, BadInputError) as error:
        if not _is_left_behind(left_behind, named, location):
            raise CheckpointFoundError.unseen(job, query.name, location, error.problem, ran=ran) from error
        log.warning("Query %s begins anew; %s could not be read", query.name, location)
        return
    if found is None:
        return
    if not _is_left_behind(left_behind, named, location):
        if found.adopted is not None:
            by, root = found.adopted.job, found.adopted.root
            raise CheckpointFoundError.adopted(job, query.name, location, by, root, ran=ran)
        raise CheckpointFoundError.of(job, query.name, location, found.where, ran=ran)
    log.warning("Query %s begins anew and leaves behind what is at %s: %s", query.name, location, found.where)


def shown(spark: Spark, named: str) -> str:
    """Return a location as people read and write it: whole, so that every process finds it."""
    return _without_file(spark.open_by_hadoop(named).qualified)


def recorded_location(spark: Spark, named: str | None) -> str | None:
    """Return the same for the records, without reading the place: its store may not answer now.

    None if the script names no place, a very long one, or one that only its file system could complete.
    """
    if not named or len(named) > MOST_SERVERS_CHARACTERS:
        return None
    whole = spark.whole(named)
    return None if whole is None else _without_file(whole)


def _without_file(qualified: str) -> str:
    if qualified.startswith("file:/") and not qualified.startswith("file://"):
        return qualified.removeprefix("file:")
    return qualified


def _found(spark: Spark, named: str) -> _Found | None:
    """Return what is at a location; None if no batch was planned there.

    Spark 2.4 wrote ``%20`` for a space into the path itself; newer ones refuse to start beside such a folder.
    """
    for place in dict.fromkeys((named, spark.spelled(named))):
        store = spark.open_by_hadoop(place)
        found = look_into(store)
        if found is not None:
            query_id = f", query id {found.query_id}" if found.query_id else ""
            spelled = "" if place == named else f" (in {place}, as Spark 2.4 wrote it)"
            where = f"{found.where}{query_id}{spelled}{_beside(spark, place)}"
            return _Found(where=where, adopted=_mark_in(store))
    return None


def _mark_in(store: ObjectStore) -> AdoptedMark | None:
    """Return the mark of the job that adopted a checkpoint; None without a mark that can be read."""
    mark = store.get(ADOPTED_KEY)
    try:
        return None if mark is None else AdoptedMark.from_bytes(mark.data)
    except FlinkstyleError as error:
        log.warning("%s has a mark that cannot be read: %s", store.uri, error.problem)
        return None


def _beside(spark: Spark, place: str) -> str:
    """Name the checkpoints in the same folder: those of the script's other queries may be among them."""
    folder, _, own = place.rstrip("/").rpartition("/")
    if not folder or folder.endswith(("/", ":")):
        return ""
    try:
        others = [name for name in checkpoints_below(spark.open_by_hadoop(folder)) if name != own]
    except (StoreError, BadInputError):
        return ""
    more = f" and {len(others) - _MOST_BESIDE} more" if len(others) > _MOST_BESIDE else ""
    return f"; beside it {', '.join(others[:_MOST_BESIDE])}{more}" if others else ""


def _is_left_behind(left_behind: Collection[str], named: str, location: str) -> bool:
    own = {_plain(named), _plain(location)}
    return any(_plain(one) in own for one in left_behind)


def _plain(location: str) -> str:
    """Return one spelling for what is written with and without a scheme, or by S3's several names."""
    scheme, colon, rest = location.rstrip("/").partition(":")
    if not colon or "/" in scheme:
        return location.rstrip("/")
    if scheme == "file":
        return "/" + rest.lstrip("/")
    return f"s3:{rest}" if scheme in {"s3", "s3a", "s3n"} else f"{scheme}:{rest}"
