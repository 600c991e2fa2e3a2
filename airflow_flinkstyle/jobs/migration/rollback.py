"""The rollback to where the job ran before the window, and the last task of a migration.

Producers are released only once it is known who runs (``cutover.race``), to the winner's side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.cutover import race
from airflow_flinkstyle.jobs.cutover.context import UNTOUCHED, Settled
from airflow_flinkstyle.jobs.errors import ProducersNotHeldError
from airflow_flinkstyle.jobs.migration import completion, fence_phase
from airflow_flinkstyle.jobs.status import Starting, describe_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.cutover.context import Where
    from airflow_flinkstyle.jobs.migration.context import MigrationContext
    from airflow_flinkstyle.types import Generation

_WHERE: dict[str, Where] = {"release_new": "new", "release_old": "old", "untouched": "untouched"}


def roll_back(context: MigrationContext) -> Mapping[str, Any]:
    """Let the job run where it ran before, unless the new driver has taken over; a retry continues it.

    Returns:
        ``winner``, the generation that runs, and ``position``, where producers were released to.
    """
    phase = context.journal.open("rollback", {})
    if phase.record.result is not None:
        return phase.record.result
    if context.journal.read("standby") is None:
        return context.journal.close(phase, {"winner": None, "position": "untouched"})
    winner, new = race.winner(context)
    position: Literal["release_new", "release_old"] = "release_new" if winner == new else "release_old"
    context.journal.check()
    if context.journal.read("hold") is not None:
        if position == "release_old":
            fence_phase.drop_fence(context.journal, context.kafka.watch)
        context.hold.release(position)
    return context.journal.close(phase, {"winner": winner, "position": position})


def settle(context: MigrationContext) -> Settled:
    """Finish a migration in whichever direction it can still go, and prove where producers write."""
    if not context.journal.has_begun:
        return UNTOUCHED
    context.begin()
    with context.at_work():
        return _settle(context)


def _settle(context: MigrationContext) -> Settled:
    journal, client = context.journal, context.client
    named, new = _named(context), client.own_claim(f"{journal.migration_id}/next")
    if journal.read("rollback") is None and (
        named == new is not None or journal.result("takeover") is not None
    ):
        completion.release(context)
        if named == new:
            return _on_the_new_cluster(context, named)
        return Settled(where="new", generation=named, detail="It had moved; later runs are not its matter.")
    found = roll_back(context)
    if found["position"] == "release_new" and found["winner"] == _named(context):
        return _on_the_new_cluster(context, found["winner"])
    where = _WHERE[found["position"]]
    detail = f"Producers: {found['position']}. {job_after(context)}"
    return Settled(where=where, generation=found["winner"], detail=detail)


def job_after(context: MigrationContext) -> str:
    """Start the job again if its driver died, and say what it does once that was seen; for messages."""
    client, timeout_s = context.client, context.settings.takeover_timeout_s
    wait = client.waiting(timeout_s)
    while True:
        try:
            status = client.ensure_running(client.settled_status(at_most_s=timeout_s, afresh=True))
        except FlinkstyleError as error:
            return f"It does not run: {error.problem}"
        if not isinstance(status, Starting) or not wait.again():
            return f"As seen now, {describe_status(status)}."


def _named(context: MigrationContext) -> Generation | None:
    current = context.client.board.current()
    return current.value.generation if current else None


def _on_the_new_cluster(context: MigrationContext, generation: Generation | None) -> Settled:
    job = job_after(context)
    _require_quiet_old(context)
    written = fence_phase.late_writes(context.journal, context.kafka.watch)
    detail = f" WARNING: a producer wrote to the old one after the proof. {written}" if written else ""
    return Settled(where="new", generation=generation, detail=f"The job is on the new cluster. {job}{detail}")


def _require_quiet_old(context: MigrationContext) -> None:
    """Where people switch by hand, prove that nobody was left behind on the old cluster."""
    writes = context.kafka.who_writes(context.topics, context.settings.steady_window_s)
    if writes is not None:
        raise ProducersNotHeldError(
            f"No producer was expected to write to the old cluster any more. {writes}",
            state_after="The job runs on the new cluster and gets these records only while MirrorMaker runs.",
            remedy="Move them to the new cluster before MirrorMaker is stopped, then clear this task.",
        )
