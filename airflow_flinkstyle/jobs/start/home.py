"""What it means for a start that plain Spark ran the job before, and whether plain Spark still runs it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import metadata
from airflow_flinkstyle.checkpoint.errors import CheckpointError
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.errors import NOT_ADOPTED, OLD_JOB_RUNS, RewindError
from airflow_flinkstyle.jobs.start.origins import FromCheckpoint, FromSavepoint, LastState
from airflow_flinkstyle.savepoint.compat import read_up_to
from airflow_flinkstyle.storage.errors import ObjectMissingError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.jobs.start.origins import Origin
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.home import Home, OutsideCheckpoint
    from airflow_flinkstyle.protocol.records import TakeoverOrder

log = logging.getLogger(__name__)


def from_home(runs: JobView, origin: Origin) -> Origin:
    """Return where a start continues, for a job that plain Spark runs or ran last.

    Raises:
        JobError: ``NOT_ADOPTED`` if plain Spark runs the job: to continue here would repeat or lose its
            batches.
        JobError: ``OLD_JOB_RUNS`` if the adopted checkpoints were written since.
        RewindError: If the savepoint to continue is older than what plain Spark did before the adoption.
    """
    home = runs.board.binding_home()
    if home is None or home.state == "leaving":  # a person may still change their mind
        return origin
    if home.state == "adopted":
        return _adopted(runs, home, origin)
    goes_back = isinstance(origin, FromSavepoint) and (home.state == "watched" or origin.rewind != "continue")
    if goes_back or not isinstance(origin, (LastState, FromCheckpoint, FromSavepoint)):
        return origin  # a person has named a savepoint, or the history that is given up
    where = "; ".join(f"{name} in {one.location}" for name, one in sorted(home.checkpoints.items()))
    state = "left, with savepoint " + str(home.savepoint_id) if home.state == "left" else "never adopted"
    again = " ".join(f"--checkpoint {name}={one.location}" for name, one in sorted(home.checkpoints.items()))
    raise NOT_ADOPTED.with_text(
        f"Job {runs.board.job} was expected to be run from here, found that it was {state}: plain Spark has "
        f"it ({where}).",
        state_after="Nothing was started.",
        remedy=f"Stop it there, then adopt it: flinkstyle job adopt --job {runs.board.job} {again}.",
    )


def order_stands(runs: JobView, order: TakeoverOrder | None, origin: Origin) -> bool:
    """Return whether a start that was ordered, and that no driver has begun, would be ordered so again.

    Between the order and a retry the old job may have run on, and have been adopted once more.

    Raises:
        JobError, RewindError: As ``from_home``.
    """
    if order is None or runs.board.binding_home() is None:
        return True
    wanted = from_home(runs, origin)
    is_the_same = not isinstance(wanted, FromSavepoint) or wanted.savepoint_id == order.savepoint_id
    return is_the_same or order.rewind != "continue"


def require_order_stands(runs: JobView, order: TakeoverOrder | None) -> None:
    """Require the same where only the order is known; raises as ``from_home``."""
    if order is not None and order.savepoint_id is not None:
        order_stands(runs, order, FromSavepoint(savepoint_id=order.savepoint_id, rewind=order.rewind))


def _adopted(runs: JobView, home: Home, origin: Origin) -> Origin:
    if not isinstance(origin, (LastState, FromCheckpoint, FromSavepoint)):
        return origin
    if isinstance(origin, FromSavepoint):
        if origin.rewind != "continue":
            return origin  # a person has chosen what becomes of the batches since
        _require_not_behind(runs, home, origin)
    require_still(runs, home, state_after="Nothing was started.")
    return (
        origin if isinstance(origin, FromSavepoint) else FromSavepoint(savepoint_id=home.savepoint_id or "")
    )


def _require_not_behind(runs: JobView, home: Home, origin: FromSavepoint) -> None:
    """Require that a savepoint holds what plain Spark did until the adoption; raises ``RewindError``."""
    manifest = runs.repository.read(origin.savepoint_id)
    for query in manifest.queries:
        one, reached = home.checkpoints.get(query.name), read_up_to(manifest, query)
        if one is None or reached > one.batch_id:
            continue
        lacks_plan = one.planned and query.planned_offsets is None
        if reached < one.batch_id or lacks_plan:
            last = one.batch_id + (1 if lacks_plan else 0)
            raise RewindError(
                f"Savepoint {manifest.savepoint_id} was expected to hold what plain Spark did until the job "
                f"was adopted, batch {last} of query {query.name}, found batch {reached}.",
                state_after="Nothing was started.",
                remedy=f"Start from the last state, or from savepoint {home.savepoint_id}, to continue; or "
                "choose rewind='fork' or rewind='re-emit', which write the batches since again.",
            )


def require_old_job_ended(runs: JobView, state_after: str) -> None:
    """Require of an adopted job that plain Spark no longer runs it; raises ``OLD_JOB_RUNS``."""
    slot = runs.board.home()
    if slot is not None and slot.value.state == "adopted":
        require_still(runs, slot.value, state_after=state_after)


def require_still(runs: JobView, home: Home, *, state_after: str) -> None:
    """Require that nobody has written to the adopted checkpoints since; raises ``OLD_JOB_RUNS``."""
    found = list(moved_on(runs, home))
    if found:
        raise OLD_JOB_RUNS.with_text(
            f"The old checkpoints of job {runs.board.job} were expected to stand still since it was adopted, "
            f"found: {'; '.join(found)}.",
            state_after=state_after,
            remedy="Find out what started the old script again (a scheduler, an operator, a person) and end "
            "it. If this job has run no batch yet, adopt it again to begin where the old one is now. Else "
            "the output since holds records twice; once that is settled, move the old checkpoint away.",
        )


def moved_on(runs: JobView, home: Home) -> Iterator[str]:
    """Yield, for each adopted checkpoint that was written since, what happened there.

    Skips a checkpoint that cannot be read from here, and one that was deleted.
    """
    for name, one in sorted(home.checkpoints.items()):
        try:
            if (change := _change_since(runs, one)) is not None:
                yield f"query {name} in {one.location} {change}"
        except ObjectMissingError:
            continue
        except (StoreError, BadInputError, CheckpointError) as error:
            log.warning("The old checkpoint of query %s cannot be read from here: %s", name, error)


def _change_since(runs: JobView, one: OutsideCheckpoint) -> str | None:
    checkpoint = runs.open_checkpoint(one.location)
    query_id = metadata.parse(checkpoint.read("metadata").decode()).query_id
    done, planned = (max(list_batches(checkpoint, part), default=-1) for part in ("commits", "offsets"))
    if query_id != one.query_id:
        return f"is another one now ({query_id}, then {one.query_id})"
    if done > one.batch_id:
        return f"went on from batch {one.batch_id} to batch {done}"
    return f"has planned batch {planned}" if planned > one.batch_id + one.planned else None
