"""What can go wrong between a caller and a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError, ErrorKind, FlinkstyleError
from airflow_flinkstyle.protocol.errors import CheckpointFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

_SHOWN = 20


class JobError(FlinkstyleError):
    """Root of the errors about a job's runs."""

    code = "JOB"


class JobRunningError(JobError):
    """Another run of the job is up, or being started."""

    code = "JOB_RUNNING"

    @classmethod
    def of(cls, job: str, holder: str) -> Self:
        """Name the run that has the job."""
        return cls(
            f"Job {job} was expected not to run, found that {holder}.",
            state_after="Nothing was started; that run continues.",
            remedy="Stop it first (StopStreamingJobOperator, flinkstyle job stop), or use another job name.",
        )


class JobNotRunningError(JobError):
    """Something was asked of a job that no driver runs."""

    code = "JOB_NOT_RUNNING"


class DriverFailedError(JobError):
    """The driver ended, or never came up; its own error and the end of its log are in the message."""

    code = "DRIVER_FAILED"


class NotTakenError(DriverFailedError):
    """A cluster, or this machine, did not take a driver, for a reason that is not known to last."""

    code = "DRIVER_NOT_TAKEN"
    retryable = True


class ClusterLoginError(JobError):
    """A cluster asks for a login, and this host has none that can be used now, or none that it accepts."""

    code = "CLUSTER_LOGIN"
    retryable = True  # a ticket or a file is renewed, and a server of logins comes back


class DriverLostError(DriverFailedError):
    """The driver ended without reporting why: killed, out of memory, its host or the store was lost."""

    code = "DRIVER_LOST"
    retryable = True


class RequestBusyError(JobError):
    """Another request to the same driver has not ended yet."""

    code = "REQUEST_BUSY"
    retryable = True


class RequestFailedError(JobError):
    """The driver refused the request or failed at it."""

    code = "REQUEST_FAILED"


class RequestPostponedError(RequestFailedError):
    """The driver failed at the request for a reason that may pass; asking again makes a new request."""

    code = "REQUEST_POSTPONED"
    retryable = True


class CheckpointMismatchError(JobError):
    """The checkpoint that was found is not the one the last run recorded."""

    code = "CHECKPOINT_MISMATCH"


class CheckpointUnreadError(CheckpointMismatchError):
    """The checkpoint cannot be read from here; the job's own driver may be able to."""


class RewindError(JobError):
    """A savepoint is older than what the job has committed since, and no rewind was chosen."""

    code = "REWIND"


class LastStateError(JobError):
    """A job cannot continue where it was: its state is out of reach, and no savepoint is the same state."""

    code = "LAST_STATE"

    def after_trying(self, why_not: str) -> LastStateError:
        """Add why the job's own driver could not continue in the same checkpoint."""
        return LastStateError(f"{self.problem} Tried first: {why_not}.", self.state_after, self.remedy)


class CheckpointWrittenError(JobError):
    """A checkpoint that nobody should write is being written, or was a moment ago."""

    code = "CHECKPOINT_WRITTEN"


class AdoptedBeforeError(JobError):
    """A job, or a checkpoint, was adopted before, and this is another adoption."""

    code = "ADOPTED_BEFORE"


class DiesWithStarterError(JobError):
    """A driver that was started here would end with the task or the worker that starts it."""

    code = "DIES_WITH_STARTER"


class MayDieWithStarterError(DiesWithStarterError):
    """Whether such a driver would end with its starter is unknown: systemd does not answer."""

    retryable = True


class StaleTokenError(JobError):
    """An older attempt tried to hold or release producers after a newer one had begun."""

    code = "STALE_TOKEN"


class AttemptSupersededError(JobError):
    """A newer attempt of the same migration has begun; this one must not act any more."""

    code = "ATTEMPT_SUPERSEDED"


class FenceStandsError(JobError):
    """The rollback could not take down the fence, and so does not release the producers."""

    code = "FENCE_STANDS"


class FenceStandsYetError(FenceStandsError):
    """The fence still stands for a reason that may pass: a retry takes it down and continues the rollback."""

    retryable = True


class NotTestedError(JobError):
    """The rehearsal of a new version read no rows, so the version is untested."""

    code = "NOT_TESTED"

    @classmethod
    def of(cls, savepoint_id: str, queries: Sequence[str]) -> Self:
        """Name the savepoint and the queries."""
        return cls(
            f"The rehearsal on savepoint {savepoint_id} was expected to run rows through each query, found "
            f"NOT TESTED, no rows read: {', '.join(queries)}.",
            state_after="The next version has not taken the job over.",
            remedy="Try again once there are records to read; or let it take over untested "
            "(allow_untested=True).",
        )


HELD_NO_MORE = ErrorKind(
    code=JobRunningError.code,
    means="A caller that held a stopped job was taken for dead, and the job was given back; it may ask "
    "again.",
    transient=True,
    family=JobRunningError,
)

JOB_UNKNOWN = ErrorKind(
    code="JOB_UNKNOWN",
    means="A job, or any job, was expected below a savepoint root that has none.",
    problem="Expected a job {job} in {uri}, found {there}.",
    state_after="Nothing was changed.",
    remedy="Correct the job's name or the savepoint root.",
    family=JobNotRunningError,
)

JOB_UNKNOWN_NO_JOBS = JOB_UNKNOWN.case(
    "Expected jobs in {uri}, found none.",
    "Correct the savepoint root; in a new one, the first start of a job makes its folder.",
)

DRIVER_KEEPS_DYING = ErrorKind(
    code="DRIVER_KEEPS_DYING",
    means="A driver dies again and again, without a reason of its own and without a batch.",
    problem="The driver of generation {generation} of job {job} was expected to commit a batch, found that "
    "it has died and was started again {times} times in a row since {since}.",
    state_after="It was started once more; a watcher of many jobs tries once an hour from now on.",
    remedy="Look at the end of its log, and why its process ended: the kernel's and the cluster's logs show "
    "a lack of memory.",
    family=JobError,
)

SAVEPOINT_STALE = ErrorKind(
    code="SAVEPOINT_STALE",
    means="A job has no savepoint that is as new as it should be.",
    problem="Expected a savepoint of job {job} that is at most {max_age_s:g} s old, found {found}.",
    state_after="The job keeps running.",
    remedy="Look at what takes its savepoints (rotate_savepoints), or take one now.",
    family=JobError,
)

DRILL_FAILED = ErrorKind(
    code="DRILL_FAILED",
    means="A savepoint could not be restored and run, in a drill.",
    family=JobError,
)

BEGINS_ANEW = ErrorKind(
    code=CheckpointFoundError.code,
    means="A query would start from the beginning although its script names a checkpoint of it.",
    family=DriverFailedError,
)

NO_ROOM = ErrorKind(
    code="NO_ROOM",
    means="A cluster, a queue or a quota is too full for a driver beside the one that runs.",
    transient=True,
    family=JobError,
)

SIGNING_KEY = ErrorKind(
    code="SIGNING_KEY",
    means="A record that starts a process must be signed or verified, and there is no key for it.",
    state_after="Nothing was started.",
    remedy='Make a key (python -c "import secrets; print(secrets.token_urlsafe(32))") and put it into the '
    "password of the flinkstyle connection; commands read it from FLINKSTYLE_SIGNING_KEY.",
    family=JobError,
)

DRIVER_RETRIED = ErrorKind(
    code=DriverFailedError.code,
    means="The driver failed for a reason that may pass: a watcher, or the same start again, starts the "
    "next.",
    transient=True,
    family=DriverFailedError,
)

STILL_BEATING = ErrorKind(
    code="STILL_BEATING",
    means="A driver was to be declared dead, and writes heartbeats.",
    family=JobError,
)

STOP_INCOMPLETE = ErrorKind(
    code="STOP_INCOMPLETE",
    means="The savepoint of a stop is complete, and the run did not close; asking again stops it.",
    transient=True,
    family=JobError,
)

CUT_FAILED = ErrorKind(
    code="CUT_FAILED",
    means="Several jobs could not be cut together; they continue uncut.",
    transient=True,
    family=JobError,
)

STEP_TIMEOUT = ErrorKind(
    code="STEP_TIMEOUT",
    means="Something that was waited for did not happen in time.",
    transient=True,
    family=JobError,
)

HISTORY = ErrorKind(
    code="HISTORY",
    means="A job with a history would start without it, and that history was not named.",
    family=JobError,
)

SOURCE_CLUSTER = ErrorKind(
    code="SOURCE_CLUSTER",
    means="None, or more than one, of the Kafka clusters that were named has the topics that a checkpoint "
    "read.",
    family=JobError,
)

NOT_ADOPTED = ErrorKind(
    code="NOT_ADOPTED",
    means="Plain Spark runs the job, as far as its records tell: it was not adopted, or was left.",
    family=JobError,
)

OLD_JOB_RUNS = ErrorKind(
    code="OLD_JOB_RUNS",
    means="An adopted checkpoint was written since: the old job was started again.",
    state_after="The old job may run; this one has not taken over.",
    family=JobError,
)

LOCATION_NOT_EMPTY = ErrorKind(
    code="LOCATION_NOT_EMPTY",
    means="A checkpoint was to be written to a location that holds something.",
    family=JobError,
)

RECORDS_NEEDED = ErrorKind(
    code="RECORDS_NEEDED",
    means="A job was to be removed whose records are needed.",
    state_after="Nothing was removed.",
    family=JobError,
)

DEPLOY_MODE = ErrorKind(
    code="DEPLOY_MODE",
    means="A deploy mode this package cannot drive yet.",
    state_after="Nothing was started.",
    family=BadInputError,
)

MIGRATION_BUSY = ErrorKind(
    code="MIGRATION_BUSY",
    means="Another migration has begun to move the same run of the job.",
    family=JobError,
)

MIGRATION_ENDED = ErrorKind(
    code="MIGRATION_ENDED",
    means="The migration has ended already: it went back, or its job runs on the target.",
    family=JobError,
)

DONE_BEFORE = ErrorKind(
    code="DONE_BEFORE",
    means="An earlier try has done what is asked for, and the job has changed since.",
    family=JobError,
)

NOT_AS_APPROVED = ErrorKind(
    code="NOT_AS_APPROVED",
    means="A task of a migration has other arguments than those that were approved.",
    family=JobError,
)

ROLLED_BACK = ErrorKind(
    code="ROLLED_BACK",
    means="The migration was given up, and the job runs where it ran before.",
    family=JobError,
)

PRODUCERS_NOT_HELD = ErrorKind(
    code="PRODUCERS_NOT_HELD",
    means="Records still arrive on a cluster whose producers should be held.",
    family=JobError,
)

HOLD_LOST = ErrorKind(
    code="HOLD_LOST",
    means="The hold of the producers has ended by itself, because it was not renewed in time.",
    family=JobError,
)

LATE_WRITES = ErrorKind(
    code="LATE_WRITES",
    means="Records came to the old cluster after the proof that nobody writes there.",
    family=JobError,
)

MIRROR_BEHIND = ErrorKind(
    code="MIRROR_BEHIND",
    means="MirrorMaker has not mirrored everything in time.",
    family=JobError,
)

PREFLIGHT = ErrorKind(
    code="PREFLIGHT",
    means="The pre-flight found something that makes the migration impossible or unsafe.",
    family=JobError,
)

UPGRADE_ROLLED_BACK = ErrorKind(
    code="UPGRADE_ROLLED_BACK",
    means="The new version failed before it committed a batch; the old version runs again.",
    family=JobError,
)

UPGRADE_CHOICE = ErrorKind(
    code="UPGRADE_CHOICE",
    means="The new version failed after it committed a batch: going back is a rewind, so a person chooses.",
    family=JobError,
)

UPGRADE_UNHEALTHY = ErrorKind(
    code="UPGRADE_UNHEALTHY",
    means="The new version commits batches, is unhealthy, and runs on: a person chooses what to do.",
    family=JobError,
)

COMPARISON_FAILED = ErrorKind(
    code="COMPARISON_FAILED",
    means="One of two versions that are compared failed on the records that both were to read.",
    problem="The {which} version of job {job} was expected to run batches from savepoint {savepoint_id}, "
    "found {code}: {text}",
    state_after="The job was not touched.",
    remedy="Correct what the error names, then compare again.",
    family=JobError,
)

VERSIONS_DIFFER = ErrorKind(
    code="VERSIONS_DIFFER",
    means="The new version computes something else than the old one on the same records.",
    problem="Both versions of job {job} were expected to compute the same from savepoint {savepoint_id}, "
    "found: {summary}.",
    state_after="The old version runs, and was never stopped.",
    remedy="Look at the rows in the task's log. If they should differ, name the columns (ignore, tolerance), "
    "or accept it with expect='differs'.",
    family=JobError,
)

NOT_COMPARABLE = ErrorKind(
    code="NOT_COMPARABLE",
    means="Two versions cannot be compared: a query is new, a key is missing, or there was nothing to read.",
    problem="Both versions of job {job} were expected to be compared from savepoint {savepoint_id}, found: "
    "{summary}.",
    state_after="The old version runs, and was never stopped.",
    remedy="Change what it names; or compare from an older savepoint; or accept it with expect='differs'.",
    family=JobError,
)


def job_unknown(job: str, uri: str, *, known: Sequence[str]) -> FlinkstyleError:
    """Name the job, the root, and the jobs to choose from."""
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    there = f"the jobs {', '.join(known[:_SHOWN])}{more}" if known else "no job at all"
    return JOB_UNKNOWN.error(job=job, uri=uri, there=there)
