"""Errors only the agent raises."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import ErrorKind, FlinkstyleError
from airflow_flinkstyle.types import ONLY_QUERY

if TYPE_CHECKING:
    from collections.abc import Iterator

DROPPED = "spark.flinkstyle.droppedQueries"
"""Setting with the names, separated by commas, of queries that the job had and is to have no more."""
NOT_STARTED = "No query was started by this; checkpoints are as they were."
AS_IT_WAS = "The query was not started; its checkpoint is as it was."
_RESUME_UNCUT = "Nothing was written to any checkpoint; the running queries resume uncut."


@contextmanager
def leaving(state_after: str) -> Iterator[None]:
    """Set what every error raised inside leaves behind: the same read of Kafka starts a query, or cuts it."""
    try:
        yield
    except FlinkstyleError as error:
        raise error.rephrased(state_after=state_after) from error


class QueryUnknownError(FlinkstyleError):
    """A query would start without state while the state of another one is continued by no query."""

    code = "QUERY_UNKNOWN"


class PlannedBatchOpenError(FlinkstyleError):
    """The planned batch was not committed while stopping; if the cause may pass, the next driver runs it."""

    code = "PLANNED_BATCH"


class PlannedBatchPostponedError(PlannedBatchOpenError):
    """It was not committed, for a reason that may pass: the next driver runs it."""

    retryable = True


class CutAbandonedError(FlinkstyleError):
    """The cut of several jobs is given up: one of them failed, or the others took too long."""

    code = "CUT_ABANDONED"
    retryable = True


class NoQueryError(FlinkstyleError):
    """The script ended and never started a streaming query."""

    code = "NO_QUERY"


class SupersededError(FlinkstyleError):
    """Another driver process has taken this one's place."""

    code = "SUPERSEDED"


NOT_CLAIMED = ErrorKind(
    code="NOT_CLAIMED",
    means="The driver was started for a generation that no caller claimed.",
    state_after=NOT_STARTED,
)

QUERY_NAME = ErrorKind(
    code="QUERY_NAME",
    means="A query cannot be told from the job's others.",
    state_after=NOT_STARTED,
)

QUERY_NAME_MISSING = QUERY_NAME.case(
    "A job of several queries was expected to name each of them, found one without a name beside {others}.",
    "Give every query a name of its own with .queryName(...); one that ran without a name before continues "
    f"under the name '{ONLY_QUERY}'.",
)

QUERY_NAME_TAKEN = QUERY_NAME.case(
    "A start of query '{name}' was expected to be of the query that was started before under this "
    "name{unnamed}, found {found}: they would share one checkpoint, and the second would leave out what the "
    "first has read.",
    "Give every query a name of its own with .queryName(...). A query that is to be started again and to "
    "continue needs its own checkpointLocation, and the same sources and output each time.",
)

QUERY_NAME_REFUSED_BEFORE = QUERY_NAME.case(
    "A run that can be relaunched was expected, found one that was refused: {text}",
    "Correct the script, then start the job again.",
)

UNSUPPORTED_MODE = ErrorKind(
    code="UNSUPPORTED_MODE",
    means="The script uses a mode of Spark whose checkpoints cannot be cut between two batches.",
    problem="Classic PySpark with micro-batches was expected, but the script uses {mode}.",
    state_after=NOT_STARTED,
    remedy="{remedy}",
)

SOURCES_CHANGED = ErrorKind(
    code="SOURCES_CHANGED",
    means="The query reads other sources than its checkpoint represents.",
    state_after=AS_IT_WAS,
)

QUERY_ENDED = ErrorKind(
    code="QUERY_ENDED",
    means="A query has ended, or the script stopped it, so that it cannot be cut at the others' offsets.",
    problem="All queries were expected to run, so that they can be cut at the same offsets, found that "
    "{names} ended.",
    state_after=_RESUME_UNCUT,
    remedy="Take the savepoint with alignment='none': it holds each query where it is.",
)

QUERY_UNREGISTERED = ErrorKind(
    code="QUERY_UNREGISTERED",
    means="Spark runs a query that was started past PySpark's writers, by a helper in a JAR.",
    problem="All queries of the driver were expected to be started by PySpark's writeStream, found {names}, "
    "which was not: a savepoint would lack it, and a resume would run it from elsewhere than the others.",
    state_after="No savepoint was made; the job keeps running.",
    remedy="Start it with writeStream...start() in the script, or in an application of its own. For a "
    "savepoint now, end that query first. To stop the job now, stop it without a savepoint "
    "(savepoint=False, --no-savepoint): the other queries end between two batches and continue there at the "
    "next start, that one ends in whatever batch it is in.",
)

QUERY_NOT_STARTED = ErrorKind(
    code="QUERY_NOT_STARTED",
    means="A query that the run continues was not started: it cannot be cut at the others' offsets.",
    problem="All queries that the job had were expected to be started within {waited_s:g} s, so that they "
    "can be cut at the same offsets, found that the script has not started {names}.",
    state_after=_RESUME_UNCUT,
    remedy="Ask again once the script has started them; or take the savepoint with alignment='none', which "
    f"holds each query where it is; or name in {DROPPED} what the job is to have no more.",
    transient=True,
)

BARRIER_BEHIND = ErrorKind(
    code="BARRIER_BEHIND",
    means="A query has read past the offsets that all are to be cut at.",
    transient=True,
)

BARRIER_UNREACHABLE = ErrorKind(
    code="BARRIER_UNREACHABLE",
    means="A query cannot read up to the offsets that all are to be cut at.",
    transient=True,
)

SCRIPT_FAILED = ErrorKind(
    code="SCRIPT_FAILED",
    means="The user's script, or a query of it, failed.",
)

REHEARSAL_FAILED = ErrorKind(
    code="REHEARSAL_FAILED",
    means="A query failed on the scratch copy of the hot savepoint, before anything of the job was touched.",
    problem="Query {query} was expected to run on a scratch copy of savepoint {savepoint_id}, found that it "
    "fails: {text}",
    state_after="The driver has not taken the job over; its scratch copy is removed.",
    remedy="Correct the new version, then try again.",
)

VERSION_INCOMPATIBLE = ErrorKind(
    code="VERSION_INCOMPATIBLE",
    means="A new version changes what it could not continue with.",
    problem="Query {query} was expected to fit what the savepoint holds, found that {found}",
    state_after=NOT_STARTED,
    remedy="Undo what is named in the new version.",
)

REHEARSAL_TIMEOUT = ErrorKind(
    code="REHEARSAL_TIMEOUT",
    means="A rehearsal did not end in time.",
    problem="The rehearsal of query {query} was expected to end within {timeout_s:g} s.",
    state_after="Nothing but the scratch copy was written.",
    remedy="Look for what takes so long; or rehearse fewer batches or records, or allow more time.",
)

COMPARED_RUN = ErrorKind(
    code="COMPARED_RUN",
    means="The driver that chooses the batches of a comparison has ended before it ran them all.",
    problem="Generation {generation} was expected to run the batches that both versions are compared on, "
    "found that it has ended: {reason}",
    state_after="Nothing but scratch copies was written.",
    remedy="Look at that driver's log: it runs the version that the job runs now.",
)

COMPARED_WRITES = ErrorKind(
    code="COMPARED_WRITES",
    means="A script that is compared writes past its queries' sinks, which each run would do once more.",
    problem="The script was expected to write through its queries only while two versions are compared, "
    "found {what}.",
    state_after="This was not written; the job was not touched.",
    remedy="Move it into a query's foreachBatch, which a comparison does not call; or allow it "
    "(allow_writes, --allow-writes) if each run may write it once more.",
)

REPLAY_OUTPUT = ErrorKind(
    code="REPLAY_OUTPUT",
    means="A replay writes, or may write, to the output of the job whose records it replays.",
    problem="Query {query} of the replay was expected to write elsewhere than job {job}, found {found}.",
    state_after="Nothing of this query was run; the job was not touched.",
    remedy="Give the script another output, by its arguments (args, --args), and replay under another name, "
    "or remove this one first.",
)

REPLAY_SOURCE = ErrorKind(
    code="REPLAY_SOURCE",
    means="A replay has a query whose records cannot be replayed up to a chosen end.",
    problem="Query {query} was expected to be in the savepoint of job {job} and to read Kafka only, found "
    "{found}.",
    state_after="Nothing of this query was run; the job was not touched.",
    remedy="Leave the query out of the script that is replayed.",
)

REPLAY_RANGE = ErrorKind(
    code="REPLAY_RANGE",
    means="The range of a replay ends before its savepoint, or where the log cannot be read.",
    problem="The range of the replay was expected to end {expected}, found {found}.",
    state_after="Nothing of this query was run; the job was not touched.",
    remedy="Name a later end (until), or an older savepoint.",
)

SCHEMA_LOG = ErrorKind(
    code="SCHEMA_LOG",
    means="A script has read a table of Delta by another log of schemas than its query continues with.",
    state_after=NOT_STARTED,
)

SCHEMA_LOG_OLDER = SCHEMA_LOG.case(
    "The script was expected to read the table of query {query} by the schema with which the query "
    "continues (schemaTrackingLocation .../{name}), found an earlier one: it read the table before the "
    "driver knew the newer schema.",
    "Start the job again: its next driver knows the schema when the script reads the table.",
)

SCHEMA_LOG_SHARED = SCHEMA_LOG.case(
    "Queries of a job were expected to follow the schema of one table in folders of different names, found "
    "query {query} and another one with schemaTrackingLocation .../{name}.",
    "Give the folders different names and start the queries fresh.",
)


def query_name_taken(name: str, found: str) -> FlinkstyleError:
    """Explain why a start is not of the query that had the name before."""
    unnamed = " (that of a query without one)" if name == ONLY_QUERY else ""
    return QUERY_NAME_TAKEN.error(name=name, unnamed=unnamed, found=found)
